# SPDX-License-Identifier: Apache-2.0
"""Wheels made on the spot, and runs ended half-way."""

from __future__ import annotations

import os
import re
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

WheelMaker = Callable[..., Path]
# A run that leads its own process group, the signal, and when it is to come.
EndWhen = Callable[[subprocess.Popen[str], int, Callable[[], bool]], str]


@pytest.fixture
def make_wheel(tmp_path: Path) -> WheelMaker:
    """A function that writes a wheel: name, version, files, tag, requirements, entry points."""

    def make(
        name: str,
        version: str = "1.0",
        *,
        files: dict[str, bytes] | None = None,
        tag: str = "py3-none-any",
        requires: tuple[str, ...] = (),
        entry_points: str = "",
    ) -> Path:
        info = f"{name}-{version}.dist-info"
        path = tmp_path / f"{name}-{version}-{tag}.whl"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
        extras = re.findall(r"extra == ['\"]([^'\"]+)", metadata)
        metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, data in (files or {f"{name}/__init__.py": b"VALUE = 7\n"}).items():
                archive.writestr(file, data)
            archive.writestr(f"{info}/METADATA", metadata)
            archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
            if entry_points:
                archive.writestr(f"{info}/entry_points.txt", entry_points)
            archive.writestr(f"{info}/RECORD", "")
        return path

    return make


@pytest.fixture
def end_when() -> EndWhen:
    """A function that signals a run and its children once something is so, and returns stderr."""

    def end(run: subprocess.Popen[str], number: int, so: Callable[[], bool]) -> str:
        deadline = time.monotonic() + 900
        while not so():
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(run.pid, number)
        return run.communicate()[1]

    return end
