# SPDX-License-Identifier: Apache-2.0
"""The operator libraries of stage 1 that batch_invariant_ops would find, in its order.

`csrc/torch_ops_extension/src/library.cpp` is the search that counts; a test compares the two.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from .system import System

VENDOR = "batch_invariant"
LIBRARY = "op_api/lib/libcust_opapi.so"
SUMS = "scripts/files.sha256"
CUSTOM = "ASCEND_CUSTOM_OPP_PATH"


@dataclass(frozen=True)
class Place:
    """A directory `vendors/batch_invariant`, and what led to it."""

    directory: Path
    named_by: str

    @property
    def library(self) -> Path:
        return self.directory / LIBRARY

    def version_info(self) -> dict[str, str]:
        """The `key=value` lines of version.info; empty where it cannot be read."""
        try:
            text = (self.directory / "version.info").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return {}
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def sums(self) -> str:
        """The text of files.sha256, which this tree's installer writes; empty without one."""
        try:
            return (self.directory / SUMS).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def damaged(self) -> list[str]:
        """What differs from the sha256 it was installed with: "path: why", sorted."""
        listed = self.sums().splitlines()
        if not listed:
            # The run package makes a link, and sums. What pip, conda, Spack or Huawei's installer
            # put there is a directory without them.
            return [f"{SUMS}: cannot be read"] if self.directory.is_symlink() else []
        found = []
        for line in listed:
            expected, _, name = line.partition("  ")
            try:
                digest = hashlib.sha256((self.directory / name).read_bytes()).hexdigest()
            except OSError as error:
                found.append(f"{name}: {error.strerror}")
                continue
            if digest != expected:
                found.append(f"{name}: another sha256")
        if not any(line.endswith(f"  {LIBRARY}") for line in listed):
            found.append(f"{SUMS}: does not list {LIBRARY}")
        return sorted(found)


def entries(system: System) -> list[str]:
    """The entries of ASCEND_CUSTOM_OPP_PATH as the search takes them."""
    return [
        entry if entry == "/" else entry.rstrip("/") or "/"
        for entry in system.environ.get(CUSTOM, "").split(":")
        if entry
    ]


def places(system: System) -> list[Place]:
    """Where a library is looked for, in order; not all of it exists."""
    found = []
    for entry in entries(system):
        if Path(entry).name == VENDOR:
            found.append(Place(Path(entry).absolute(), CUSTOM))
        found.append(Place(Path(entry).absolute() / "vendors" / VENDOR, CUSTOM))
    prefix = system.prefix / "share" / "ascend" / "opp"
    found.append(Place(prefix / "vendors" / VENDOR, "the Python's prefix"))
    if cann := system.environ.get("ASCEND_OPP_PATH"):
        found.append(Place(Path(cann).absolute() / "vendors" / VENDOR, "ASCEND_OPP_PATH"))
    return found


def present(system: System) -> list[Place]:
    """The places that hold a library, the one in use first; each directory once."""
    found: dict[Path, Place] = {}
    for place in places(system):
        if place.library.exists():
            found.setdefault(place.directory.resolve(), place)
    return list(found.values())
