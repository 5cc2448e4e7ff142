# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/guide.md, for the tests that run them as they stand there.

A fenced block's first line is its language and one word more: `id=NAME` for what a test runs,
`log=NAME` for pieces of log lines, `npu` for commands that need an NPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
_FENCE = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    mark: str  # "id=…", "log=…", "npu", or "" where the block says nothing
    text: str


def blocks(name: str = "guide.md") -> list[Block]:
    """The fenced blocks of docs/NAME, in their order."""
    return [Block(*found.groups()) for found in _FENCE.finditer((DOCS / name).read_text())]


def block(mark: str, name: str = "guide.md") -> str:
    """The text of the one block that is marked so."""
    (only,) = (found for found in blocks(name) if found.mark == mark)
    return only.text
