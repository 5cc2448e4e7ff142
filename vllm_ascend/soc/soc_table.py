# SPDX-License-Identifier: Apache-2.0
"""The SoC table: which row of `soc.toml` a name stands for.

The table itself is data and is never retyped here. It lies beside this package in an installed
wheel and in the tree's root in a source tree.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
"""The `schema` of soc.toml that this module reads."""


class SocError(ValueError):
    """What stands in the way of knowing the SoC; the message is one line for a person."""


class UnknownSocError(SocError):
    """The name is not in the table at all."""


class UnsupportedSocError(SocError):
    """The name is that of a chip which exists and for which there are no operators."""


class UndecidedSocError(SocError):
    """No name was given, and this machine does not decide which SoC is meant."""


@dataclasses.dataclass(frozen=True, slots=True)
class Soc:
    """One row of the table; the fields are described at the top of `soc.toml`."""

    name: str
    label: str
    product: str
    targets: tuple[str, ...]
    aliases: tuple[str, ...]
    prefixes: tuple[str, ...]
    npu_arch: int
    min_cann: str
    chips: tuple[str, ...]

    @property
    def is_npu(self) -> bool:
        """Whether the row is an NPU rather than the reference on the host's processor."""
        return self.npu_arch != 0

    def _answers_to(self, spelling: str) -> bool:
        """Whether `spelling`, in lower case, names this row."""
        if spelling in {self.name, *self.targets, *self.aliases}:
            return True
        if any(spelling.startswith(prefix) for prefix in self.prefixes):
            return True
        return any(chip_pattern(chip).fullmatch(spelling) for chip in self.chips)


@dataclasses.dataclass(frozen=True, slots=True)
class Unsupported:
    """Chips that are refused by name, and why."""

    match: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """The whole of `soc.toml`."""

    rows: tuple[Soc, ...]
    unsupported: tuple[Unsupported, ...]

    def accepted(self) -> str:
        """The names to offer in a message: each row's own name, then its `target=` names."""
        offers = []
        for row in self.rows:
            others = [target for target in row.targets if target != row.name]
            offers.append(f"{row.name} ({', '.join(others)})" if others else row.name)
        return ", ".join(offers)

    def resolve(self, name: str) -> Soc:
        """The row that `name` stands for.

        A name is a row's name, a `target=` name, a `SOC_VERSION` spelling or a chip as `npu-smi`
        prints it. Upper and lower case are the same, but for one case: `910B` (and `Ascend910B`),
        written exactly so, is what a first-generation Ascend 910 calls itself, while `910b` and
        `ascend910b` mean Atlas A2.

        Raises:
            UnsupportedSocError: a chip that is refused by name.
            UnknownSocError: any other name that no row answers to.
        """
        given = name.strip()
        spelling = given.lower()
        row = next((row for row in self.rows if row._answers_to(spelling)), None)
        for entry in self.unsupported:
            chips = {*entry.match, *(f"Ascend{chip}" for chip in entry.match)}
            if given in chips or (row is None and spelling in {chip.lower() for chip in chips}):
                hint = f"; for {row.product} write {row.name}" if row else ""
                raise UnsupportedSocError(f"{given!r} is not supported: {entry.reason}{hint}")
        if row is None:
            raise UnknownSocError(f"unknown SoC {given!r}; expected one of {self.accepted()}")
        return row


def chip_pattern(chip: str) -> re.Pattern[str]:
    """A chip of the table as a pattern for lower-case names; `*` is one or more digits."""
    return re.compile(re.escape(chip.lower()).replace(re.escape("*"), "[0-9]+"))


def table_path() -> Path:
    """Where the table lies: beside the package in a wheel, else in the root of the source tree.

    Raises:
        FileNotFoundError: it lies at neither place.
    """
    package = Path(__file__).resolve().parent
    candidates = (package.with_name("soc.toml"), package.parent.parent / "soc.toml")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    searched = " and ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(f"soc.toml is missing from this installation; searched {searched}")


def parse(text: str) -> Table:
    """The table that `text`, the content of a `soc.toml`, states.

    Raises:
        ValueError: another schema, a field that is missing, unknown or of the wrong type, or a
            spelling that two rows claim.
    """
    data = tomllib.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"soc.toml: expected schema {SCHEMA}, found {data.get('schema')!r}")
    rows = tuple(_row(name, fields) for name, fields in data["soc"].items())
    claimed: dict[str, str] = {}
    for row in rows:
        for spelling in {row.name, *row.targets, *row.aliases}:
            if spelling != spelling.lower():
                raise ValueError(f"soc.toml: {spelling!r} of {row.name} is not in lower case")
            if claimed.setdefault(spelling, row.name) != row.name:
                raise ValueError(
                    f"soc.toml: {spelling!r} belongs to {claimed[spelling]} and to {row.name}"
                )
    unsupported = tuple(
        Unsupported(match=tuple(entry["match"]), reason=str(entry["reason"]))
        for entry in data.get("unsupported", [])
    )
    return Table(rows=rows, unsupported=unsupported)


def _row(name: str, fields: Mapping[str, Any]) -> Soc:
    expected = {field.name for field in dataclasses.fields(Soc)} - {"name"}
    if set(fields) != expected:
        differing = ", ".join(sorted(set(fields) ^ expected))
        raise ValueError(f"soc.toml: [soc.{name}] has missing or unknown fields: {differing}")
    values: dict[str, Any] = {"name": name}
    for key, value in fields.items():
        kind = {"npu_arch": int, "label": str, "product": str, "min_cann": str}.get(key, list)
        if not isinstance(value, kind):
            raise ValueError(f"soc.toml: [soc.{name}] {key}: expected {kind.__name__}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return Soc(**values)


@functools.cache
def table() -> Table:
    """The table of this installation."""
    return parse(table_path().read_text(encoding="utf-8"))


def rows() -> tuple[Soc, ...]:
    """Every row of the table, in its order."""
    return table().rows


def resolve(name: str) -> Soc:
    """The row that `name` stands for; see `Table.resolve`."""
    return table().resolve(name)
