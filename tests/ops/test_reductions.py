# SPDX-License-Identifier: Apache-2.0
"""Sums, means and softmax over one dimension: within their bounds, independent of the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from .bits import assert_same_bits, same_bits
from .bounds import (
    assert_log_softmax_within,
    assert_mean_within,
    assert_softmax_within,
    assert_sum_within,
)
from .trials import CASES, Trial, assert_rows_are_independent, dtypes, sizes, trials

ops = torch.ops.batch_invariant_ops

lengths = sizes(130, 255, 1000, 4095, 4097, 9001, 20000)
others = st.lists(st.one_of(st.integers(1, 9), st.sampled_from([1, 33])), max_size=2)

Reduction = Callable[[torch.Tensor, int, bool], torch.Tensor]
Check = Callable[[torch.Tensor, torch.Tensor, int, bool], None]


def check_reduction(
    reduce: Reduction, check: Check, shape: list[int], dim: int, dtype: torch.dtype, trial: Trial
) -> None:
    """`dim` of `shape` is reduced; every other extent is batch."""
    x = trial.values(*shape, dtype=dtype)
    torch.set_num_threads(trial.threads[0])
    found = reduce(x, dim, False)
    check(found, x, dim, False)
    assert found.shape == x.sum(dim).shape
    torch.set_num_threads(trial.threads[1])
    kept = reduce(x, dim - x.dim(), True)
    assert_same_bits(kept, found.unsqueeze(dim), "keepdim, negative dim, threads")
    assert_same_bits(reduce(trial.relaid(x), dim, False), found, "strides")
    rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
    (by_row,) = assert_rows_are_independent(lambda r: [reduce(r, 1, False)], [rows], trial)
    assert_same_bits(by_row.reshape(found.shape), found, "as rows of a matrix")


def shape_of(others: list[int], length: int, place: int) -> tuple[list[int], int]:
    dim = place % (len(others) + 1)
    return [*others[:dim], length, *others[dim:]], dim


@CASES
@example([300], 4097, 1, torch.float32, Trial(1, "padded", (1, 2)))
@example([257], 9001, 0, torch.bfloat16, Trial(2, "stepped", (3, 2)))
@given(others, lengths, st.integers(0, 2), dtypes, trials)
def test_reduce_sum(
    others: list[int], length: int, place: int, dtype: torch.dtype, trial: Trial
) -> None:
    shape, dim = shape_of(others, length, place)
    check_reduction(ops.npu_reduce_sum_batch_invariant, assert_sum_within, shape, dim, dtype, trial)


@CASES
@example([300], 4097, 1, torch.float32, Trial(3, "padded", (1, 2)))
@given(others, lengths, st.integers(0, 2), dtypes, trials)
def test_reduce_mean(
    others: list[int], length: int, place: int, dtype: torch.dtype, trial: Trial
) -> None:
    shape, dim = shape_of(others, length, place)
    check_reduction(
        ops.npu_reduce_mean_batch_invariant, assert_mean_within, shape, dim, dtype, trial
    )


def check_softmax(
    softmax: Callable[[torch.Tensor, int], torch.Tensor],
    check: Callable[[torch.Tensor, torch.Tensor, int], None],
    shape: list[int],
    dim: int,
    dtype: torch.dtype,
    trial: Trial,
) -> None:
    x = trial.values(*shape, dtype=dtype) * 4
    torch.set_num_threads(trial.threads[0])
    found = softmax(x, dim)
    check(found, x, dim)
    torch.set_num_threads(trial.threads[1])
    assert_same_bits(softmax(x, dim - x.dim()), found, "negative dim, threads")
    assert_same_bits(softmax(trial.relaid(x), dim), found, "strides")
    rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
    (by_row,) = assert_rows_are_independent(lambda r: [softmax(r, 1)], [rows], trial)
    again = found.movedim(dim, -1).reshape(by_row.shape)
    assert_same_bits(by_row, again, "as rows of a matrix")


@CASES
@example([300], 4097, 1, torch.float32, Trial(4, "padded", (1, 2)))
@given(others, lengths, st.integers(0, 2), dtypes, trials)
def test_softmax(
    others: list[int], length: int, place: int, dtype: torch.dtype, trial: Trial
) -> None:
    shape, dim = shape_of(others, length, place)
    check_softmax(ops.npu_softmax_batch_invariant, assert_softmax_within, shape, dim, dtype, trial)


@CASES
@example([300], 4097, 1, torch.bfloat16, Trial(5, "padded", (1, 2)))
@given(others, lengths, st.integers(0, 2), dtypes, trials)
def test_log_softmax(
    others: list[int], length: int, place: int, dtype: torch.dtype, trial: Trial
) -> None:
    shape, dim = shape_of(others, length, place)
    check_softmax(
        ops.npu_log_softmax_batch_invariant, assert_log_softmax_within, shape, dim, dtype, trial
    )


VOCABULARY = 151_936


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_stock_torch_changes_with_threads_over_a_vocabulary_and_ours_does_not(name: str) -> None:
    x = Trial(6, "padded", (1, 1)).values(VOCABULARY, dtype=torch.float32)
    stock = {"sum": torch.sum, "mean": torch.mean}[name]
    ours = getattr(ops, f"npu_reduce_{name}_batch_invariant")
    stock_differs = False
    for start in range(64):
        row = x.roll(start)
        torch.set_num_threads(1)
        stock_one, ours_one = stock(row), ours(row, 0)
        torch.set_num_threads(2)
        stock_differs |= not same_bits(stock(row), stock_one)
        assert_same_bits(ours(row, 0), ours_one, f"start {start}")
    assert stock_differs


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_another_order_of_the_elements_gives_other_bits(name: str) -> None:
    """Torch's softmax was never seen to change; so show that the order of the sum does show."""
    trial = Trial(7, "padded", (1, 1))
    x = trial.values(16, 5000, dtype=torch.float32)
    order = trial.permutation(5000)
    softmax = getattr(ops, f"npu_{name}_batch_invariant")
    assert not same_bits(softmax(x, 1)[:, order], softmax(x[:, order], 1))
