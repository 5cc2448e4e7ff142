# SPDX-License-Identifier: Apache-2.0
"""Judges a traced call: ours, independent of the batch, or uncovered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .independence import (
    CHOICES,
    CONTAINERS,
    CORRECTLY_ROUNDED,
    MAY_ACCUMULATE,
    MOVES,
    TESTED,
    WITH_FACTOR,
)
from .trace import Call

OURS = "ours"
OVERRIDDEN = "overridden"
CONTAINER = "container"
VIEW = "view"
INTEGERS = "integers"
CONSTANT = "constant"
MOVE = "move"
EXACT = "exact"
CHOICE = "choice"
RANDOM = "random"
TESTED_CLASS = "tested"
UNCOVERED = "uncovered"

# What each class means, in the order in which a report lists them.
CLASSES: dict[str, str] = {
    UNCOVERED: "may depend on the batch, and nothing takes its place",
    OURS: "a batch-invariant operator",
    OVERRIDDEN: "computed by the operators named",
    TESTED_CLASS: "shown by test to be independent of the batch",
    EXACT: "element by element, correctly rounded",
    CHOICE: "comparisons inside a row",
    RANDOM: "random numbers",
    MOVE: "values are moved, picked or converted",
    VIEW: "another view of the same memory",
    INTEGERS: "integers and booleans: exact",
    CONSTANT: "made from no tensor",
    CONTAINER: "its inner calls are judged one by one",
}

OUR_NAMESPACE = "batch_invariant_ops"


@dataclass(frozen=True)
class Finding:
    """How one operator is covered."""

    operator: str
    kind: str
    """A key of CLASSES."""
    by: tuple[str, ...] = ()
    reason: str = ""


def _full_name(by: str) -> str:
    """An override's `by` without a namespace is one of ours."""
    return by if "::" in by else f"{OUR_NAMESPACE}::{by}"


def _independent(call: Call) -> Finding | None:
    """Independence by construction or by test; None where the call may depend on the batch."""
    base = call.base

    def finding(kind: str, reason: str = "") -> Finding:
        return Finding(call.operator, kind, (), reason or CLASSES[kind])

    if call.random:
        own = "from the request's own generator"
        shared = "for requests without a seed; the sampler replaces those of seeded requests"
        return finding(RANDOM, own if call.generator else shared)
    if call.view:
        return finding(VIEW)
    if base in TESTED:
        return finding(TESTED_CLASS, TESTED[base])
    if not call.floats:
        return finding(INTEGERS)
    if not call.tensors_in:
        return finding(CONSTANT)
    if base in MOVES and not (base in MAY_ACCUMULATE and call.accumulates):
        return finding(MOVE)
    if base in CHOICES:
        return finding(CHOICE)
    if base in CORRECTLY_ROUNDED and not (base in WITH_FACTOR and call.alpha):
        return finding(EXACT)
    return None


def made_of_calls(operator: str, overrides: Mapping[str, Sequence[str]]) -> bool:
    """Whether `judge` needs the calls that this operator's kernel makes, composite or not."""
    return operator in overrides or operator.split("::")[0] in CONTAINERS


def judge(call: Call, overrides: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Judges a call and, where it is made of others, those.

    `overrides` maps an operator that has our kernel ("aten::mm") to the operators that compute it.
    Such a kernel hands calls that it cannot compute to the stock one; what counts is therefore what
    it called, and a call that reached none of them is judged as the stock operator's.
    """
    namespace = call.operator.split("::")[0]
    if namespace == OUR_NAMESPACE:
        yield Finding(call.operator, OURS, (), CLASSES[OURS])
        return
    by = overrides.get(call.operator)
    if by is not None:
        wanted = {_full_name(name) for name in by}
        used = sorted({inner.base for inner in call.below()} & wanted)
        if used:
            yield Finding(call.operator, OVERRIDDEN, tuple(used), CLASSES[OVERRIDDEN])
            for inner in call.calls:
                yield from judge(inner, overrides)
            return
    if call.composite or namespace in CONTAINERS:
        yield Finding(call.operator, CONTAINER, (), CLASSES[CONTAINER])
        for inner in call.calls:
            yield from judge(inner, overrides)
        return
    independent = _independent(call)
    yield independent or Finding(call.operator, UNCOVERED, (), CLASSES[UNCOVERED])
