# SPDX-License-Identifier: Apache-2.0
"""What `npu-smi info` and `npu-smi info -t board` say about the chips.

The table of `npu-smi info` has two rows a chip. Up to 25.5 the first begins with the card's number
and the chip's name in one cell; since 25.7, which knows the 950, they are two cells:

    | 0     910B4               | OK            | 86.0        40                0    / 0         |
    | 0                         | 0000:C1:00.0  | 0           0    / 0          2849 / 32768     |

    | 0      | Ascend950PR      | OK            | 205.7       71                0     / 0        |
    |        |                  | 0000:71:00.0  | 100         0    / 0          90633 / 131072   |

A board is `key : value` lines. There an A3 or a 950 has two names, `Chip Name` and `NPU Name`.

A name counts only where it is whole: in a table, where its cell is closed. Nothing is inferred from
what a text lacks.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator

from .soc_table import (
    Soc,
    SocError,
    Table,
    UnknownSocError,
    UnsupportedSocError,
    chip_pattern,
)

FIRST_GENERATION_HBM = 32768
"""Megabytes of HBM of a first-generation Ascend 910 at most. An A3's chip, which is called
"Ascend910" in the table whatever its `NPU Name`, has 65536."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# Bars that a terminal or a document may have made of "|", and spaces that are none.
_LOOKALIKES = str.maketrans("\u2502\u2503\uff5c\uff1a\u00a0\ufeff", "|||:  ")
_HEALTH = re.compile(r"OK|Warning|Alarm|Critical|UNKNOWN|Offline", re.IGNORECASE)
_LIKE_A_CHIP = re.compile(r"(?:Ascend)?[0-9]{3}[A-Z]|Ascend[0-9]{3}", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,4}")
_NUMBER_AND_NAME = re.compile(r"([0-9]{1,4})\s+(\S.*)")
_USAGE = re.compile(r"[0-9]+\s*/\s*([0-9]+)")
_FAULT = re.compile(r"\bret(?:urn)?(?: is|=|:)? ?(-80[0-9]{2}|-8255)\b")
_BOARD_KEYS = frozenset({"NPU ID", "NPU Name", "Chip ID", "Chip Type", "Chip Name"})
_ABSENT = ("", "NA", "N/A", "-")
_LONGEST_LINE = 1000  # npu-smi's are a tenth of it


class NpuSmiError(SocError):
    """A text that names no chip, or several SoCs; the message is one line for a person."""


class DriverFaultError(NpuSmiError):
    """The text is the driver's error instead of an answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chip:
    """A chip as a text names it.

    Attributes:
        name: as printed, `NPU Name` included where the text has one: `910B4`, `Ascend910_9392`.
        card: the number of its card, npu-smi's `-i`; "" where the text does not say.
        hbm: megabytes of HBM, None where the text does not say.
    """

    name: str
    card: str = ""
    hbm: int | None = None


def board_question(chip: Chip) -> tuple[str, ...]:
    """The arguments of npu-smi that show a chip's `NPU Name`."""
    return ("info", "-t", "board", "-i", chip.card or "0", "-c", "0")


class UndecidedChipError(NpuSmiError):
    """A chip's name fits a row of the table, and only its board says whether it is of that row."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        super().__init__(
            f"the chip is called {chip.name!r}, and the text has neither its NPU Name nor its HBM,"
            f" which would decide: give the output of npu-smi {' '.join(board_question(chip))}"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Identified:
    """The one SoC of a text, and its chips in order."""

    soc: Soc
    chips: tuple[Chip, ...]


def identify(text: str, table: Table) -> Identified:
    """The SoC that every chip in a text of `npu-smi info` or `npu-smi info -t board` has.

    Raises:
        UnsupportedSocError, UnknownSocError: a chip without operators, or one not in the table.
        DriverFaultError: the driver's error instead of chips.
        UndecidedChipError: a name does not decide.
        NpuSmiError: no chip is named, or chips of two SoCs.
    """
    chips = chips_in(text)
    if not chips:
        raise _no_chip(text)
    found: dict[str, Soc] = {}
    undecided = []
    for chip in chips:
        row = row_of(chip, table)
        if row is None:
            undecided.append(chip)
        else:
            found.setdefault(chip.name, row)
    socs = {row.name: row for row in found.values()}
    if len(socs) > 1:
        named = ", ".join(f"{name} ({row.name})" for name, row in found.items())
        raise NpuSmiError(f"expected chips of one SoC, found {named}: name the SoC that is meant")
    for chip in undecided:
        if not any(_base(name) == _base(chip.name) for name in found):
            raise UndecidedChipError(chip)
    return Identified(next(iter(socs.values())), chips)


def _base(name: str) -> str:
    """A chip's name without its `NPU Name`."""
    return name.partition("_")[0].lower()


def row_of(chip: Chip, table: Table) -> Soc | None:
    """The row of a chip; None where the name fits a row and does not decide.

    Raises:
        UnsupportedSocError, UnknownSocError: a chip without operators, or one not in the table.
    """
    name = chip.name.lower()
    short = name.removeprefix("ascend")
    for entry in table.unsupported:
        if short in {match.lower() for match in entry.match}:
            raise UnsupportedSocError(f"{chip.name!r} is not supported: {entry.reason}")
    undecided = False
    for row in table.rows:
        for chip_name in row.chips:
            pattern = chip_pattern(chip_name)
            if pattern.fullmatch(name) or pattern.fullmatch(short):
                return row
            # In the table of npu-smi info the NPU Name is missing.
            base, _, npu_name = chip_name.lower().partition("_")
            if npu_name and name == base:
                if npu_name == "*" or (chip.hbm or 0) > FIRST_GENERATION_HBM:
                    return row
                undecided = True
    if undecided and chip.hbm is None:
        return None
    npus = ", ".join(row.product for row in table.rows if row.is_npu)
    memory = f" with {chip.hbm} MB of HBM" if undecided else ""
    raise UnknownSocError(f"unknown chip {chip.name!r}{memory}; expected one of {npus}")


def chips_in(text: str) -> tuple[Chip, ...]:
    """Every chip that a text names, those of tables before those of boards."""
    plain = _ESCAPES.sub("", text).translate(_LOOKALIKES)
    lines = [line for line in re.split(r"[\r\n]+", plain) if len(line) <= _LONGEST_LINE]
    return (*_chips_in_tables(lines), *_chips_in_boards(lines))


def _chips_in_tables(lines: Iterable[str]) -> Iterator[Chip]:
    """The chips of the tables of `npu-smi info`."""
    among_processes = False
    begun: Chip | None = None
    for line in lines:
        cells = _cells(line)
        if not cells:
            continue
        if any(cell.startswith("Process") for cell in cells):
            among_processes = True
        elif "Health" in cells:
            among_processes = False
        if among_processes:
            continue
        found = _chip_in(cells)
        if found is not None:
            if begun is not None:
                yield begun
            begun = found
        elif begun is not None:
            # The second row of a chip. If it is whole, it ends with the HBM, before which stands
            # the memory that first-generation chips have beside it and the 310 has instead.
            usages = _USAGE.findall(cells[-1]) if line.rstrip().endswith("|") else []
            hbm = int(usages[-1]) if len(usages) > 1 else None
            yield dataclasses.replace(begun, hbm=hbm)
            begun = None
    if begun is not None:
        yield begun


def _cells(line: str) -> list[str]:
    """The closed cells of a table's row from the first that is not empty; [] for another line."""
    _, *cells = line.split("|")
    return list(itertools.dropwhile(lambda cell: not cell, (cell.strip() for cell in cells[:-1])))


def _chip_in(cells: list[str]) -> Chip | None:
    """The chip, where the cells begin as the first row of one does."""
    match cells:
        case [first, *rest] if both := _NUMBER_AND_NAME.fullmatch(first):
            card, name, health = both[1], both[2], rest[:1]
        case [card, name, *health] if _NUMBER.fullmatch(card):
            pass
        case _:
            return None
    # Where the health is cut off or one not heard of, the name has to look like one: the second
    # row of a chip and the table of processes begin with two numbers, too.
    if (health and _HEALTH.fullmatch(health[0])) or _LIKE_A_CHIP.match(name):
        return Chip(name, card)
    return None


def _chips_in_boards(lines: Iterable[str]) -> Iterator[Chip]:
    """The chips of the boards of `npu-smi info -t board`, one after another."""
    board: dict[str, str] = {}
    for line in lines:
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or key not in _BOARD_KEYS or value in _ABSENT:
            continue
        if key in board:
            # A key again: the next chip's.
            yield from _chip_of(board)
            board = {}
        board[key] = value
    yield from _chip_of(board)


def _chip_of(board: dict[str, str]) -> Iterator[Chip]:
    name = board.get("Chip Name", "")
    kind, npu_name, card = (board.get(key, "") for key in ("Chip Type", "NPU Name", "NPU ID"))
    if not name:
        return
    if name.lower().startswith("ascend"):
        yield Chip(f"{name}_{npu_name}" if npu_name else name, card)
    elif kind.lower() in ("", "ascend"):
        yield Chip(name, card)
    else:
        yield Chip(f"{kind}{name}", card)


def _no_chip(text: str) -> NpuSmiError:
    """Why a text names no chip."""
    lines = [line for line in map(str.strip, _ESCAPES.sub("", text).splitlines()) if line]
    for line in lines:
        if fault := _FAULT.search(line):
            return DriverFaultError(
                f"the NPU's driver answers {fault[1]} instead of naming a chip ({_short(line)}):"
                " load it, or give this user or container access to /dev/davinci*, and try again"
            )
    if not lines:
        return NpuSmiError("expected the output of npu-smi info, found nothing")
    shown = next((line for line in lines if not set(line) <= set("+-=| ")), lines[0])
    return NpuSmiError(
        "expected the output of npu-smi info or npu-smi info -t board -i 0 -c 0, found no chip's "
        f"whole name in {len(lines)} lines, the first being {_short(shown)!r}"
    )


def _short(line: str) -> str:
    """A line of someone's text as part of ours."""
    printable = "".join(c if c.isprintable() else " " for c in line)
    words = " ".join(printable.split())
    return words if len(words) <= 60 else f"{words[:57]}..."
