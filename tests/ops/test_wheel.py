# SPDX-License-Identifier: Apache-2.0
"""The wheel itself: what it records, and that the same source gives the same bytes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import batch_invariant_ops
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "csrc/torch_ops_extension"
INSTALLED = Path(batch_invariant_ops.__file__).parent / "lib/libbatch_invariant_ops.so"


def dynamic_section(library: Path) -> str:
    readelf = shutil.which("readelf")
    assert readelf, "readelf comes with the compiler that this project needs"
    return subprocess.run(
        [readelf, "-d", str(library)], check=True, capture_output=True, text=True
    ).stdout


def test_metadata_names_the_torch_it_was_built_against() -> None:
    found = importlib.metadata.metadata("batch_invariant_ops")
    assert found["Version"] == (ROOT / "csrc/VERSION").read_text().strip()
    assert found["License-Expression"] == "Apache-2.0"
    series = ".".join(torch.__version__.split(".")[:2])
    assert found.get_all("Requires-Dist") == [f"torch=={series}.*"]


def test_the_library_records_no_path_and_needs_only_what_torch_brings() -> None:
    section = dynamic_section(INSTALLED)
    assert "RPATH" not in section and "RUNPATH" not in section
    assert "libtorch_python" not in section and "libpython" not in section
    image = INSTALLED.read_bytes()
    for path in (ROOT, Path(sys.prefix), Path(torch.__file__).parent, Path.home()):
        assert os.fsencode(path) + b"/" not in image, path


def build(source: Path, target: Path, *, umask: int) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
        *("--no-index", "--no-build-isolation", "--no-deps", "-w", str(target), str(source)),
    ]
    environ = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, check=True, umask=umask, env=environ)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_same_source_gives_the_same_bytes_elsewhere_and_from_its_sdist(tmp_path: Path) -> None:
    first = build(SOURCE, tmp_path / "first", umask=0o022)
    sdist = tmp_path / "sdist"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(sdist)],
        cwd=SOURCE,
        check=True,
    )
    (archive,) = sdist.glob("*.tar.gz")
    elsewhere = tmp_path / "a folder with spaces, äöü"
    elsewhere.mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(elsewhere)], check=True, umask=0o077)
    (unpacked,) = elsewhere.iterdir()
    second = build(unpacked, tmp_path / "second", umask=0o077)
    assert first.name == second.name
    digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in (first, second)]
    assert digests[0] == digests[1]
