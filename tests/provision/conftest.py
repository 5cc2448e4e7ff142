# SPDX-License-Identifier: Apache-2.0
"""Wheels made on the spot."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

WheelMaker = Callable[..., Path]


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
