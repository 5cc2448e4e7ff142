# SPDX-License-Identifier: Apache-2.0
"""The SoC table for the recipes: `soc.toml` of the source tree this repository lies in.

A repository that was copied out of its tree takes a `soc.toml` beside `repo.yaml`. Spack runs on
Pythons without `tomllib`, so the few forms the table uses are read here; a test compares the two.
"""

import ast
import os
import re
from typing import Any, Dict, List, NamedTuple

REPOSITORY = os.path.dirname(os.path.realpath(__file__))
TREE = os.path.normpath(os.path.join(REPOSITORY, *[os.pardir] * 4))


class Soc(NamedTuple):
    """What the recipes use of a row; the fields are described at the top of `soc.toml`."""

    name: str
    label: str
    product: str
    targets: List[str]
    npu_arch: int
    min_cann: str

    @property
    def is_npu(self) -> bool:
        """Whether the row is an NPU rather than the reference on the host's processor."""
        return self.npu_arch != 0


def parse(text: str) -> List[Soc]:
    """The rows that `text`, the content of a `soc.toml`, states, in their order.

    Raises:
        ValueError: another schema, or a line that is none of the table's forms.
    """
    rows: Dict[str, Dict[str, Any]] = {}
    top: Dict[str, Any] = {}
    fields = top
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        section = re.match(r"^\[soc\.(\w+)\]$", line)
        pair = re.match(r"^(\w+) = (.+)$", line)
        if section:
            fields = rows.setdefault(section.group(1), {})
        elif line == "[[unsupported]]":
            fields = {}
        elif pair:
            # Strings, integers and one-line lists are written alike in TOML and in Python.
            try:
                fields[pair.group(1)] = ast.literal_eval(pair.group(2))
            except (SyntaxError, ValueError):
                raise ValueError("soc.toml, line {}: cannot read {!r}".format(number, line))
        else:
            raise ValueError("soc.toml, line {}: cannot read {!r}".format(number, line))
    if top.get("schema") != 1:
        raise ValueError("soc.toml: expected schema 1, found {!r}".format(top.get("schema")))
    known = [field for field in Soc._fields if field != "name"]
    return [Soc(name, **{key: row[key] for key in known}) for name, row in rows.items()]


def path() -> str:
    """Where the table lies: in the root of the tree, else beside `repo.yaml`.

    Raises:
        RuntimeError: at neither place.
    """
    candidates = [os.path.join(place, "soc.toml") for place in (TREE, REPOSITORY)]
    for candidate in candidates:
        if os.path.isfile(candidate):
            return candidate
    raise RuntimeError(
        "no soc.toml for the Spack repository {}: add the repository of a whole source tree, or "
        "copy the tree's soc.toml beside repo.yaml".format(REPOSITORY)
    )


def rows() -> List[Soc]:
    """Every row of the table."""
    with open(path(), encoding="utf-8") as file:
        return parse(file.read())
