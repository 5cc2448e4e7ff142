# SPDX-License-Identifier: Apache-2.0
"""Huawei's operators by the script: a file or a URL, and nothing is done with another one.

In the place of Huawei's artifacts are some that the tests make; of CANN, a stub.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import platform
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from provision import official_artifact

from csrc import official, stages
from csrc.run_package.build import LIBRARY, Built, build
from tests.run_package.conftest import stage as staged
from tests.spack.sites import extension_archive
from tests.stages.test_script_errors import only, script
from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc

NPU = soc.resolve("910b")
OFFICIAL = ("--provider", "official")
INSTALLED = Path("vendors/batch_invariant") / LIBRARY


@pytest.fixture(scope="module")
def cann(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_stub_cann(tmp_path_factory.mktemp("cann"), libraries=False))


@pytest.fixture
def package(tmp_path: Path) -> Built:
    (tmp_path / "served").mkdir()
    return build(staged(tmp_path / "stage"), NPU, tmp_path / "served", version="2.0.0")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; below /short it breaks off half-way."""

    def do_GET(self) -> None:
        short = self.path.startswith("/short/")
        self.path = self.path.removeprefix("/short")
        if not short:
            super().do_GET()
            return
        data = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: it is a test's output."""


@pytest.fixture
def server(package: Built) -> Iterator[str]:
    handler = functools.partial(Handler, directory=str(package.path.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize("row", [row for row in soc.rows() if row.is_npu], ids=lambda row: row.name)
def test_without_a_known_or_given_sha256_it_stops(row: soc.Soc, cann: str, tmp_path: Path) -> None:
    name = official_artifact.read_lock().run_package(row.label, platform.machine())
    if name in official_artifact.read_lock().sha256:
        pytest.skip(f"skipped: the sha256 of {name} is known")
    done = script(
        row.name,
        *OFFICIAL,
        "--stage=1",
        f"--install-path={tmp_path / 'opp'}",
        ASCEND_HOME_PATH=cann,
    )
    line = only(done)
    assert f"no sha256 of {name} is known: give --official FILE_OR_URL, and with --sha256" in line
    assert not (tmp_path / "opp").exists()


@pytest.mark.parametrize("how", ["file", "url"])
def test_a_run_package_with_its_sha256_is_installed_and_uninstalled(
    package: Built, server: str, cann: str, tmp_path: Path, how: str
) -> None:
    source = str(package.path) if how == "file" else f"{server}/{package.path.name}"
    opp, kept = tmp_path / "opp", tmp_path / "kept"
    arguments = ["--stage=1", "--install-path", str(opp), "--output", str(kept)]
    given = ["--official", source, "--sha256", package.sha256.upper()]
    done = script("910b", *OFFICIAL, *arguments, *given, ASCEND_HOME_PATH=cann)
    assert done.returncode == 0, done.stderr
    assert (opp / INSTALLED).read_bytes() == (tmp_path / "stage" / LIBRARY).read_bytes()
    assert (kept / package.path.name).read_bytes() == package.path.read_bytes()
    assert f"{package.path.name}: from {source}" in done.stdout
    done = script("--uninstall", "--stage=1", "--install-path", str(opp))
    assert done.returncode == 0 and not (opp / INSTALLED).exists()


def refused(package: Built, cann: str, opp: Path, source: str, sha256: str) -> str:
    """The one line of a run that installs nothing."""
    given = ["--official", source, "--sha256", sha256, "--stage=1", "--install-path", str(opp)]
    line = only(script("910b", *OFFICIAL, *given, ASCEND_HOME_PATH=cann))
    assert not opp.exists() or not list(opp.rglob("*.so"))
    return line


def test_another_file_is_not_used(package: Built, server: str, cann: str, tmp_path: Path) -> None:
    name, opp = package.path.name, tmp_path / "opp"
    for source in (str(package.path), f"{server}/{name}", package.path.as_uri()):
        line = refused(package, cann, opp, source, "0" * 64)
        assert f"{source}: expected sha256 {'0' * 64}, found {package.sha256}" in line
        assert not opp.exists()
    line = refused(package, cann, opp, f"{server}/short/{name}", package.sha256)
    assert "broke off" in line or "expected sha256" in line
    with package.path.open("ab") as file:
        file.write(b"\n")
    assert "expected sha256" in refused(package, cann, opp, str(package.path), package.sha256)


def test_what_cannot_be_had_is_one_line(
    package: Built, server: str, cann: str, tmp_path: Path
) -> None:
    for source, expected in (
        (f"{server}/none.run", "cannot be had: HTTP Error 404: File not found; where there is"),
        ("http://127.0.0.1:9/x.run", "cannot be had: "),
        ("ftp://127.0.0.1/x.run", "expected https, http or file"),
        ("http://[/x.run", "http://[/x.run is no URL: "),
        (str(tmp_path / "none.run"), "cannot be read: No such file or directory"),
        (str(tmp_path), "cannot be read: Is a directory"),
    ):
        assert expected in refused(package, cann, tmp_path / "opp", source, package.sha256)
    line = refused(package, cann, tmp_path / "opp", str(package.path), "abc")
    assert "--sha256 'abc': expected 64 hexadecimal digits" in line


def test_a_run_package_for_another_machine_is_not_used(
    package: Built, cann: str, tmp_path: Path
) -> None:
    for old, new in ((f"-{NPU.label}-", "-A3-"), (platform.machine(), "riscv64")):
        other = package.path.with_name(package.path.name.replace(old, new))
        other.write_bytes(package.path.read_bytes())
        line = refused(package, cann, tmp_path / "opp", str(other), package.sha256)
        assert f", expected {NPU.label} on {platform.machine()}" in line


def test_a_script_that_is_no_run_package_is_told(package: Built, cann: str, tmp_path: Path) -> None:
    fake = tmp_path / "fake.run"
    fake.write_text("exit 0\n")
    digest = hashlib.sha256(fake.read_bytes()).hexdigest()
    line = refused(package, cann, tmp_path / "opp", str(fake), digest)
    assert "it is not the run package of the batch-invariant operators" in line


def test_what_is_needed_beside_it_is_told(package: Built, cann: str) -> None:
    assert "Huawei's operators need CANN: " in only(script("910b", *OFFICIAL))
    line = only(script("cpu", *OFFICIAL, ASCEND_HOME_PATH=cann))
    assert "--provider official is for an NPU" in line
    for given in (("--official", "x"), ("--sha256", "x"), ("--official-extension", "x")):
        assert "need --provider official" in only(script("910b", *given), 2)


def test_a_known_sha256_is_not_overruled_and_says_where_the_file_lies() -> None:
    lock = official_artifact.read_lock()
    [known] = [name for name in lock.sha256 if name.endswith(".run")]
    with pytest.raises(official.OfficialError, match=f"that of {known} is known to be"):
        official._artifact(known, "", "0" * 64, "--official")
    found = official._artifact(known, "", "", "--official")
    assert (found.source, found.sha256) == (lock.url + known, lock.sha256[known])
    assert official.extension("").sha256 == lock.sha256[lock.extension]


def test_both_stages_come_from_where_the_artifacts_lie(
    package: Built, server: str, cann: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With these artifacts' sha256 as the known ones."""
    archive = extension_archive(package.path.parent)
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (package.path, archive)
    }
    lock = official_artifact.Lock("2.0.0", f"{server}/", digests)
    monkeypatch.setattr(official_artifact, "read_lock", lambda: lock)
    monkeypatch.setenv("ASCEND_HOME_PATH", cann)
    monkeypatch.setattr(stages, "check_plugin", lambda: None)
    # Into this environment nothing is installed.
    installed: list[str] = []
    monkeypatch.setattr(stages, "install_wheel", lambda wheel, shop: installed.append(wheel.name))
    opp = tmp_path / "opp"
    arguments = ["910b", *OFFICIAL, "--install-path", str(opp)]
    stages.execute(stages.parse(arguments))
    assert (opp / INSTALLED).is_file()
    assert installed == ["batch_invariant_ops-2.0.0-py3-none-any.whl"]
    # One that is damaged: the other isn't used either.
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(stages.StageError, match="expected sha256"):
        stages.execute(stages.parse([*arguments[:-1], str(tmp_path / "second")]))
    assert not (tmp_path / "second").exists() and len(installed) == 1
