# SPDX-License-Identifier: Apache-2.0
"""Index a small channel of finished packages, in one step."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable
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


def closure(channel: Path, names: Iterable[str]) -> str:
    """A digest of the packages that ``names`` need of a channel, however indirectly.

    By name, for a channel with one version of each package; names it doesn't hold are left out.
    """
    packages: dict[str, tuple[str, str, list[str]]] = {}
    for subdir in ("noarch", native_subdir()):
        repodata = json.loads((channel / subdir / "repodata.json").read_text(encoding="utf-8"))
        for file, record in repodata["packages.conda"].items():
            packages[record["name"]] = (file, record["sha256"], record["depends"])
    found: set[str] = set()
    waiting = [name.split()[0] for name in names]
    while waiting:
        name = waiting.pop()
        if name in packages and name not in found:
            found.add(name)
            waiting += [spec.split()[0] for spec in packages[name][2]]
    lines = "".join(f"{packages[name][0]} {packages[name][1]}\n" for name in sorted(found))
    return hashlib.sha256(lines.encode()).hexdigest()
