# SPDX-License-Identifier: Apache-2.0
"""Outputs as bits, and the first place where two differ.

vLLM computes logprobs in float32 and hands them out as Python floats, which hold every float32
exactly; `bits` gets the float32 back. What is compared is each token's id and rank, and the ids,
order and bits of all logprobs that came with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# One generated token: "id rank id:bits id:bits …", the chosen one first.
Token = str
# The generated tokens of one request.
Output = tuple[Token, ...]


def bits(value: float) -> str:
    """The eight hexadecimal digits of a float32.

    Raises ValueError for a value that is no float32: bits were lost or made up on the way.
    """
    packed = struct.pack(">f", value)
    if struct.unpack(">f", packed)[0] != value and value == value:
        raise ValueError(f"{value!r} is not a float32: the engine changed a logprob's type")
    return packed.hex()


def render(token: int, rank: int | None, logprobs: Iterable[tuple[int, float]]) -> Token:
    """One generated token as text that is equal exactly where id, rank and all bits are."""
    return " ".join([f"{token} {rank}", *(f"{other}:{bits(value)}" for other, value in logprobs)])


def token_id(token: Token) -> int:
    """The id of a rendered token."""
    return int(token.split(" ", 1)[0])


@dataclass(frozen=True)
class Difference:
    """The first token of a request that is not as in the run alone."""

    request: str
    position: int
    """Index of the token in the output, from 0."""
    where: str
    """What was compared with what: "batch of 8, 2 threads"."""
    expected: str
    found: str

    @property
    def kind(self) -> str:
        """ "token" where another token was chosen, else "logprob"."""
        same = self.expected.split(" ")[0] == self.found.split(" ")[0]
        return "logprob" if same else "token"

    def describe(self) -> str:
        """One line."""
        expected, found = self.expected.split(" "), self.found.split(" ")
        if self.kind == "token":
            what = f"token {found[0] or 'none'} instead of {expected[0] or 'none'}"
        else:
            pairs = [(a, b) for a, b in zip(expected, found, strict=False) if a != b]
            a, b = pairs[0] if pairs else (f"{len(expected)} fields", f"{len(found)} fields")
            what = f"token {expected[0]} with {b} instead of {a}"
        return f"{self.where}: {self.request}, token {self.position}: {what}"


def first_difference(
    request: str, where: str, expected: Sequence[Token], found: Sequence[Token]
) -> Difference | None:
    """None where the outputs are the same to the bit and of the same length."""
    for position in range(max(len(expected), len(found))):
        a = expected[position] if position < len(expected) else ""
        b = found[position] if position < len(found) else ""
        if a != b:
            return Difference(request, position, where, a, b)
    return None


@dataclass(frozen=True)
class Comparison:
    """Requests compared with the same requests run alone."""

    where: str
    names: tuple[str, ...]
    """What was compared, once for each time."""
    differences: tuple[Difference, ...]

    @property
    def compared(self) -> int:
        return len(self.names)

    @property
    def identical(self) -> int:
        return self.compared - len(self.differences)


def compare(
    where: str, alone: Mapping[str, Output], runs: Iterable[tuple[str, Output]]
) -> Comparison:
    """Compares each (request, output) with the output of that request in `alone`."""
    names = []
    differences = []
    for request, output in runs:
        names.append(request)
        difference = first_difference(request, where, alone[request], output)
        if difference is not None:
            differences.append(difference)
    return Comparison(where, tuple(names), tuple(differences))
