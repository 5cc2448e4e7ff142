# SPDX-License-Identifier: Apache-2.0
"""Random cases of an operator, and the circumstances that must not change its bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from .bits import assert_same_bits

# Random cases of each operator.
CASES = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

THREADS = (1, 2, 3, 8)
LAYOUTS = ("transposed", "padded", "stepped")
GARBAGE = (float("nan"), float("inf"), -float("inf"), 3e38, -1e-38)

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
dtypes = st.sampled_from(FLOATS)


def sizes(small: int, *special: int) -> st.SearchStrategy[int]:
    """Mostly 1 .. small, every fifth time or so one of the special sizes."""
    few = st.integers(1, small)
    return st.one_of(few, few, few, few, st.sampled_from(special)) if special else few


@dataclass(frozen=True)
class Trial:
    """What surrounds a computation, drawn at random: none of it may show in the bits."""

    seed: int
    layout: str
    threads: tuple[int, int]
    random: torch.Generator = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "random", torch.Generator().manual_seed(self.seed))

    def values(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Normal values; in every other case of widely different magnitudes."""
        x = torch.randn(shape, generator=self.random)
        if self.seed % 2:
            x *= torch.exp2(torch.randint(-12, 4, shape, generator=self.random))
        return x.to(dtype)

    def below(self, bound: int) -> int:
        return int(torch.randint(bound, (), generator=self.random))

    def permutation(self, n: int) -> torch.Tensor:
        return torch.randperm(n, generator=self.random)

    def garbage(self, like: torch.Tensor) -> torch.Tensor:
        """Of the same shape and type, which may round it to infinity or to zero."""
        value = torch.tensor(GARBAGE[self.below(len(GARBAGE))])
        return value.to(like.dtype).repeat(like.shape)

    def relaid(self, x: torch.Tensor) -> torch.Tensor:
        """The same values at other strides and another offset, among NaN."""
        if self.layout == "transposed" and x.dim() > 1:
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        if self.layout == "stepped":
            buffer = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
            buffer[..., ::2] = x
            return buffer[..., ::2]
        padded = [size + 3 for size in x.shape]
        buffer = torch.full(padded, float("nan"), dtype=x.dtype)
        view = buffer[tuple(slice(1, 1 + size) for size in x.shape)]
        view.copy_(x)
        return view


trials = st.builds(
    Trial,
    st.integers(0, 2**31 - 1),
    st.sampled_from(LAYOUTS),
    st.tuples(st.sampled_from(THREADS), st.sampled_from(THREADS)),
)

# Row i of each result belongs to row i of each input.
RowOperator = Callable[..., Sequence[torch.Tensor]]


def assert_rows_are_independent(
    operator: RowOperator, rows: Sequence[torch.Tensor], trial: Trial
) -> Sequence[torch.Tensor]:
    """Fails where a row's bits depend on anything but that row; returns the operator's results."""

    def compare(what: str, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same_bits(one, other, f"result {index}, {what}")

    torch.set_num_threads(trial.threads[0])
    results = operator(*rows)
    torch.set_num_threads(trial.threads[1])
    compare(f"{trial.threads} threads", operator(*rows), results)

    count = rows[0].shape[0]
    order = trial.permutation(count)
    compare(
        "another order of rows", operator(*(x[order] for x in rows)), [y[order] for y in results]
    )

    cut = trial.below(count + 1)
    parts = [operator(*(x[:cut] for x in rows)), operator(*(x[cut:] for x in rows))]
    compare(f"split at row {cut}", [torch.cat(part) for part in zip(*parts, strict=True)], results)

    row = trial.below(count)
    alone = slice(row, row + 1)
    compare(f"row {row} alone", operator(*(x[alone] for x in rows)), [y[alone] for y in results])

    among = [trial.garbage(x) for x in rows]
    for x, changed in zip(rows, among, strict=True):
        changed[row] = x[row]
    compare(
        f"row {row} among others",
        [y[alone] for y in operator(*among)],
        [y[alone] for y in results],
    )

    compare(f"{trial.layout} strides", operator(*(trial.relaid(x) for x in rows)), results)
    return results
