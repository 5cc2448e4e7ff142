# SPDX-License-Identifier: Apache-2.0
"""The files of this tree that a bundle carries below ``source/``: recipes, locks, tools and all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from provision.bundle_archive import Member

FOLDER = "source"
# Where there is no git to say what is made rather than written.
_MADE = frozenset({"__pycache__", "build", "dist"})
_MADE_FILES = (".pyc", ".so", ".run", ".tar", ".tar.lock")


def _git(tree: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout


def source_files(tree: Path) -> list[Path]:
    """What git tracks, as it lies there; where the tree is no clone, what is not made."""
    top = _git(tree, "rev-parse", "--show-toplevel")
    if top is not None and Path(top.strip()) == tree.resolve():
        listed = _git(tree, "ls-files", "-z") or ""
        files = [tree / name for name in listed.split("\0") if name]
    else:
        files = []
        for folder, folders, names in os.walk(tree):
            folders[:] = [name for name in folders if _written(name)]
            files += [Path(folder) / name for name in names if not name.endswith(_MADE_FILES)]
    # A file that was removed and not yet committed is listed, and isn't there.
    return sorted(path for path in files if path.is_file())


def _written(folder: str) -> bool:
    return folder not in _MADE and not folder.endswith(".egg-info") and folder != ".git"


def source_members(tree: Path) -> Iterator[Member]:
    """The tree's files as a bundle's: a link becomes the file that it leads to."""
    for path in source_files(tree):
        name = f"{FOLDER}/{path.relative_to(tree).as_posix()}"
        yield Member(name, path, executable=os.access(path, os.X_OK))
