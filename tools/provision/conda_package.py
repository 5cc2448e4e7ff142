# SPDX-License-Identifier: Apache-2.0
"""What a conda package is made of: its files and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """One file (``data`` given) or symbolic link (``link`` given) below the prefix."""

    path: str
    data: bytes = b""
    executable: bool = False
    link: str | None = None
    # The prefix a text file names, to be replaced by the real one at installation.
    placeholder: str | None = None


@dataclass(frozen=True)
class Metadata:
    """What a package says of itself; the fields are those of ``info/index.json``."""

    name: str
    version: str
    build: str
    subdir: str
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    noarch: str | None = None
    license: str | None = None
    summary: str = ""
    run_exports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    track_features: str | None = None

    @property
    def file_name(self) -> str:
        """The archive's name: ``<name>-<version>-<build>.conda``."""
        return f"{self.name}-{self.version}-{self.build}.conda"
