# SPDX-License-Identifier: Apache-2.0
"""What a prefix says of itself: whether it was made here and may be replaced, and what it holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

# Lies in each prefix that was made here: what it holds, and the mark that it may be replaced.
STAMP = "conda-meta/batch-invariant.json"


class PrefixError(RuntimeError):
    """The prefix could not be made; one line says why."""


@dataclass(frozen=True, order=True)
class Installed:
    """One package of a prefix."""

    name: str
    version: str
    build: str
    sha256: str


def installed(prefix: Path) -> list[Installed] | None:
    """What a complete prefix made here holds; None for any other folder."""
    try:
        data = json.loads((prefix / STAMP).read_text(encoding="utf-8"))
        return [Installed(**item) for item in data["packages"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def check_replaceable(prefix: Path) -> None:
    """PrefixError if something lies there that was not made here."""
    if prefix.is_dir() and not any(prefix.iterdir()):
        return
    if prefix.exists() and installed(prefix) is None:
        raise PrefixError(
            f"{prefix} exists and was not made by quickstart or from a bundle; choose another with"
            " --prefix DIR"
        )
