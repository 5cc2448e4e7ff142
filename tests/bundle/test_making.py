# SPDX-License-Identifier: Apache-2.0
"""The archive is there whole or not at all: full disk, kill, two at once, bad input."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from provision import bundle_sources, bundle_stages, download
from provision.bundle import Options, clock_of, resolved
from provision.bundle_mirror import ARCHIVES
from provision.bundle_stages import Content
from provision.bundle_verify import BundleError, Verdict, verify
from provision.preflight import one_line
from provision.progress import Progress

from tests.bundle.conftest import CLOCK
from tests.bundle.test_archive import run
from tests.small_disk import disk_of

ROOT = Path(__file__).parents[2]
WRITE = """
import pickle, sys
from pathlib import Path
from provision import bundle_stages
from provision.progress import Progress
content = pickle.loads(Path(sys.argv[1]).read_bytes())
if sys.argv[3]:
    def fsync(descriptor):
        print("written", flush=True)
        sys.stdin.read()
    bundle_stages.os.fsync = fsync
print(bundle_stages.write(content, int(sys.argv[4]), Path(sys.argv[2]), Progress()))
"""


def start(content: Content, target: Path, slow: str = "") -> subprocess.Popen[str]:
    state = target.parent.parent / "content.pickle"
    state.write_bytes(pickle.dumps(content))
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, state, target, slow, str(CLOCK)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out/bundle.tar"


def test_a_killed_run_leaves_no_archive_and_the_next_one_makes_it(
    content: Content, target: Path
) -> None:
    process = start(content, target, "slow")
    assert process.stdout is not None and process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not target.exists() and list(target.parent.iterdir())
    process = start(content, target)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert list(target.parent.iterdir()) == [target]
    assert verify(target).faults == []
    assert len(out.strip()) == 64


def test_a_full_disk_is_one_line_and_leaves_the_old_archive(
    content: Content, tmp_path: Path
) -> None:
    with disk_of(tmp_path / "small", 64) as small:
        target = small / "bundle.tar"
        target.write_bytes(b"the old one")
        with pytest.raises(OSError, match="No space left") as raised:
            bundle_stages.write(content, CLOCK, target, Progress())
        assert target.read_bytes() == b"the old one"
        assert list(small.iterdir()) == [target]
        assert one_line(raised.value).startswith("no space left for ")


def test_what_changed_while_it_was_packed_is_not_given_out(
    content: Content, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write_bytes(b"the old one")
    found = Verdict(faults=["x: expected sha256 1, found 2"])
    monkeypatch.setattr(bundle_stages, "verify", lambda path: found)
    with pytest.raises(BundleError, match="x: expected sha256 1, found 2: something changed"):
        bundle_stages.write(content, CLOCK, target, Progress())
    assert list(target.parent.iterdir()) == [target]
    assert target.read_bytes() == b"the old one"


def test_ended_by_a_signal_the_command_says_one_line(tmp_path: Path) -> None:
    """While it waits for another run in the same folder: two at once go one after the other."""
    state = tmp_path / "state"
    for folder in ("wheels", "channel/stages"):  # as after a run, which takes less room then
        (state / folder).mkdir(parents=True)
    with subprocess.Popen(
        ["flock", state / ".provision.lock", "sh", "-c", "echo held; exec sleep 60"],
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        process = subprocess.Popen(
            [ROOT / "scripts/bundle", "cpu", "--state", state],
            env={**os.environ, "PYTHON": sys.executable},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        other.kill()
    assert "waiting for another run here" in line
    assert rest == "bundle: interrupted; run it again to continue\n"
    assert process.wait() == 130
    assert {path.name for path in state.iterdir()} == {".provision.lock", "wheels", "channel"}


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ([], {}, "expected a SOC, or --verify with a path"),
        (["cpu", "--verify", "x"], {}, "found both: leave cpu out to check x, or --verify to"),
        (["--verify", "x", "--output", "y"], {}, "--verify makes nothing"),
        (["--verify", "/no/such"], {}, "/no/such: there is no such file or folder"),
        (["310P"], {}, "'310P' is not supported: an Ascend 310"),
        (["nothing"], {}, "unknown SoC 'nothing'; expected one of "),
        (["cpu", "--cann", "/"], {}, "--downloads and --cann are for an NPU"),
        (["910b"], {"BI_DOWNLOADS": ""}, "ascend910b needs --downloads DIR"),
        (["910b"], {"BI_DOWNLOADS": "/"}, "ascend910b needs --cann DIR"),
        (["910b", "--downloads", "/no/such"], {}, "--downloads /no/such: there is no such folder"),
        (["cpu", "--mirror", "/"], {}, "--mirror is for --kind spack"),
        (
            ["cpu", "--kind", "spack", "--mirror", "/"],
            {},
            "--mirror /: expected archives in _source",
        ),
        (["910b", "--kind", "spack", "--cann", "/"], {}, "--cann is for --kind conda"),
        (["cpu", "--kind", "rpm"], {}, "--kind: invalid choice: 'rpm'"),
        (["cpu", "--output", "/no/such/x"], {}, "--output /no/such/x: its folder does not exist"),
        (["cpu", "--output", "/"], {}, "--output /: it is a folder; give a file"),
        (["cpu", "--json", "/no/such/x"], {}, "--json /no/such/x: its folder does not exist"),
        (["cpu"], {"SOURCE_DATE_EPOCH": "-1"}, "SOURCE_DATE_EPOCH is '-1': expected seconds"),
        (["cpu"], {"SOURCE_DATE_EPOCH": "9" * 12}, "expected seconds since 1970"),
        (["cpu"], {"PYTHON": "/bin/sh"}, "PYTHON=/bin/sh is not a Python 3.11"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_made(
    arguments: list[str], environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    done = run(*arguments, BI_BUILD=str(tmp_path / "build"), **environ)
    assert (done.returncode, done.stdout) == (3, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("bundle: ") and expected in line
    assert list(tmp_path.iterdir()) == []


def test_a_mirror_that_lies_is_refused_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / ARCHIVES / "00" / ("0" * 64)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"another")
    monkeypatch.setattr(download, "download", lambda *_: pytest.fail("downloads"))
    asked = Options(
        soc="cpu",
        kind="spack",
        state=str(tmp_path / "state"),
        downloads="",
        cann="",
        mirror=str(tmp_path),
        output="",
        json="",
        clock=None,
        started=0.0,
    )
    with pytest.raises(BundleError, match="its name says another"):
        bundle_stages.spack_content(asked, Progress())


def test_the_clock_is_source_date_epoch_and_a_soc_any_of_its_names() -> None:
    assert clock_of({"SOURCE_DATE_EPOCH": "1700000000"}) == CLOCK
    assert clock_of({}) is clock_of({"SOURCE_DATE_EPOCH": ""}) is None
    assert resolved("910b") == resolved("Ascend910B1") == "ascend910b"


def test_the_sources_are_what_git_has_and_all_of_a_tree_that_is_no_clone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "pkg/__pycache__").mkdir(parents=True)
    (tree / "build").mkdir()
    for name in (
        "pkg/a.py",
        "pkg/__pycache__/a.pyc",
        "build/made",
        "script",
        "gone",
        "b.so",
        "x.tar",
    ):
        (tree / name).write_text(name)
    (tree / "script").chmod(0o755)
    (tree / "link").symlink_to("script")

    def names() -> dict[str, bool]:
        return {m.path: m.executable for m in bundle_sources.source_members(tree)}

    loose = {"source/gone", "source/link", "source/pkg/a.py", "source/script"}
    assert names().keys() == loose
    assert names()["source/script"] and names()["source/link"] and not names()["source/gone"]
    (tree / ".gitignore").write_text("build/\n__pycache__/\n*.so\n*.tar\n")
    subprocess.run(["git", "init", "-q", tree], check=True)
    subprocess.run(["git", "-C", tree, "add", "."], check=True)
    (tree / "gone").unlink()
    (tree / "new").touch()
    assert names().keys() == (loose - {"source/gone"}) | {"source/.gitignore"}
