# SPDX-License-Identifier: Apache-2.0
"""Index a small channel of finished packages, in one step."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import zstandard

from provision.conda_archive import read_index
from provision.standin import native_subdir
from provision.state import file_sha256


def write(channel: Path) -> None:
    """Write ``repodata.json`` for each platform of ``channel`` from the packages that lie there.

    Written under another name and renamed: a solver beside us never reads half an index. For a
    handful of packages; it reads each whole.
    """
    for subdir in ("noarch", native_subdir()):
        folder = channel / subdir
        folder.mkdir(parents=True, exist_ok=True)
        found = {}
        for path in sorted(folder.glob("*.conda")):
            try:
                index = read_index(path)
            except (OSError, ValueError, zipfile.BadZipFile, zstandard.ZstdError):
                # Half a package, or a damaged one: it is made anew.
                path.unlink()
                continue
            found[path.name] = index | {
                "sha256": file_sha256(path),
                "size": path.stat().st_size,
            }
        text = json.dumps(
            {
                "info": {"subdir": subdir},
                "packages": {},
                "packages.conda": found,
                "removed": [],
                "repodata_version": 1,
            },
            sort_keys=True,
        )
        partial = folder / f".repodata.{os.getpid()}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(folder / "repodata.json")
