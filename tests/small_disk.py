# SPDX-License-Identifier: Apache-2.0
"""A file system that is full before long."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def disk_of(place: Path, kib: int) -> Iterator[Path]:
    """Mounts a file system of ``kib`` KiB on ``place``, which is made; skips where that is not
    permitted."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "none", str(place)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"skipped: mounting a tmpfs is not permitted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
