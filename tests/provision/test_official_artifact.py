# SPDX-License-Identifier: Apache-2.0
"""Huawei's artifact is taken with a sha256 that is known or given, and with none it is not."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from provision import official_artifact
from provision.official_artifact import SUMS, ArtifactError, Lock, find, label_of, read_lock, unpack

ROOT = Path(__file__).resolve().parents[2]
DATA = b"a run package"
SHA256 = hashlib.sha256(DATA).hexdigest()
NAME = "cann-ops-batch_invariant-910b-2.0.0-linux.x86_64.run"
UNKNOWN, KNOWN = Lock("2.0.0", "", {}), Lock("2.0.0", "", {NAME: SHA256})


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """A folder with a space in its name, and the artifact in it."""
    folder = tmp_path / "down loads"
    folder.mkdir()
    (folder / NAME).write_bytes(DATA)
    return folder


def test_names_are_those_of_the_table_and_the_lock() -> None:
    assert UNKNOWN.run_package(label_of("ascend910b"), "x86_64") == NAME
    assert read_lock().run_package(label_of("ascend910_93"), "aarch64") in read_lock().sha256
    assert read_lock().extension in read_lock().sha256
    for soc in ("cpu", "910b", "h100"):
        with pytest.raises(ArtifactError, match=f"for '{soc}'; expected one of ascend910b, "):
            label_of(soc)


def test_a_known_sha256_is_enough(downloads: Path) -> None:
    assert find(NAME, downloads, KNOWN) == downloads / NAME


def test_one_that_is_not_known_is_given(downloads: Path) -> None:
    with pytest.raises(ArtifactError, match=f"no sha256 is known for {NAME}: .*{SUMS}"):
        find(NAME, downloads, UNKNOWN)
    sums = subprocess.run(
        ["sha256sum", NAME], cwd=downloads, check=True, capture_output=True, text=True
    )
    (downloads / SUMS).write_text(sums.stdout)
    assert find(NAME, downloads, UNKNOWN) == downloads / NAME
    # A given one never takes the place of a known one.
    with pytest.raises(
        ArtifactError, match=f"gives sha256 {SHA256} .* the known one is {'0' * 64}"
    ):
        find(NAME, downloads, Lock("2.0.0", "", {NAME: "0" * 64}))


def test_another_file_a_missing_one_and_a_bad_list_are_told(downloads: Path) -> None:
    (downloads / NAME).write_bytes(b"<html>404</html>")
    with pytest.raises(ArtifactError, match=f"expected sha256 {SHA256}, found [0-9a-f]{{64}}"):
        find(NAME, downloads, KNOWN)
    (downloads / NAME).unlink()
    with pytest.raises(ArtifactError, match=f"is missing: download {NAME}"):
        find(NAME, downloads, KNOWN)
    (downloads / SUMS).write_text(f"{SHA256}  {NAME}\nmd5 of something\n")
    with pytest.raises(ArtifactError, match=f"{SUMS}:2: expected '<sha256>  <file>'"):
        find(NAME, downloads, UNKNOWN)


@pytest.mark.parametrize("top", ["", "torch_ops_extension/"])
def test_the_extension_is_unpacked_to_where_its_setup_lies(tmp_path: Path, top: str) -> None:
    archive, target = tmp_path / "extension.zip", tmp_path / "unpacked"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(f"{top}setup.py", "")
        made.writestr(f"{top}csrc/ops.cpp", "")
    assert unpack(archive, target) == target / top
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("README.md", "")
    with pytest.raises(ArtifactError, match=r"holds no setup\.py"):
        unpack(archive, target)
    archive.write_bytes(DATA)
    with pytest.raises(ArtifactError, match="is no zip archive"):
        unpack(archive, target)


def test_the_command_prints_the_path_or_one_line(downloads: Path) -> None:
    script = ROOT / "tools/provision/official_artifact.py"
    arguments = ["run-package", "--soc", "ascend910b", "--machine", "x86_64"]
    command = [sys.executable, str(script), *arguments, "--downloads", str(downloads)]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: no sha256") and failed.stderr.count("\n") == 1
    (downloads / SUMS).write_text(f"{SHA256}  {NAME}\n")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"{downloads / NAME}\n", done.stderr


def test_a_lock_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "official.toml"
    path.write_text("schema = 2\n")
    with pytest.raises(ArtifactError, match="expected schema 1, found 2"):
        official_artifact.read_lock(path)
