# SPDX-License-Identifier: Apache-2.0
"""A bundle as a person unpacks it, and with its sums made anew after a change."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provision.bundle_archive import SUMS, sums


def unpack(archive: Path, where: Path) -> Path:
    """The folder that tar makes of it."""
    where.mkdir(parents=True)
    subprocess.run(["tar", "-xf", archive, "-C", where], check=True)
    [top] = where.iterdir()
    return top


def sum_again(root: Path) -> None:
    """Write SHA256SUMS for what lies there now, so that only the other checks can tell."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name != SUMS]
    digests = [
        (path.relative_to(root).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    ]
    (root / SUMS).write_bytes(sums(digests))


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON document in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
