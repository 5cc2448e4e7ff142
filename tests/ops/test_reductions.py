# SPDX-License-Identifier: Apache-2.0
"""Sums, means and softmax over their dimensions: within their bounds, independent of the rest."""

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
from .trials import CASES, FLOATS, Trial, assert_rows_are_independent, dtypes, sizes, trials

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


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@CASES
@example([3, 4097, 5], [0, 1], True, torch.float16, torch.float32, Trial(8, "stepped", (1, 2)))
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), unique=True, max_size=4),
    st.booleans(), dtypes, st.one_of(st.none(), dtypes), trials,
)  # fmt: skip
def test_several_dims_are_one_row_in_row_major_order(
    shape: list[int],
    places: list[int],
    keepdim: bool,
    dtype: torch.dtype,
    result: torch.dtype | None,
    trial: Trial,
) -> None:
    """No dim means all; the order in which they are listed means nothing."""
    x = trial.values(*shape, dtype=dtype)
    dim = [d for d in places if d < len(shape)]
    reduced = dim or list(range(len(shape)))
    kept = [d for d in range(len(shape)) if d not in reduced]
    rows = x.permute(*kept, *sorted(reduced)).reshape(*(shape[d] for d in kept), -1)
    # Terms in another type are converted first; to float32, exactly.
    rows = rows.to(result or dtype)
    for name, check in (("sum", assert_sum_within), ("mean", assert_mean_within)):
        reduce = getattr(ops, f"npu_reduce_{name}_batch_invariant")
        stock = getattr(torch, name)
        torch.set_num_threads(trial.threads[0])
        found = reduce(x, dim, keepdim, dtype=result)
        assert found.dtype == (result or dtype)
        check(found, x.to(result or dtype), reduced, keepdim)
        torch.set_num_threads(trial.threads[1])
        wanted = reduce(rows, -1).reshape(stock(x, reduced, keepdim).shape)
        assert_same_bits(found, wanted, f"{name} of rows")
        among = reduce(trial.relaid(x), list(reversed(dim)), keepdim, dtype=result)
        assert_same_bits(among, found, f"{name}: strides, order of dims")
        negative = [d - len(shape) for d in dim] or None
        again = reduce(x, negative, keepdim, dtype=result)
        assert_same_bits(again, found, f"{name}: negative dims, None for all")


@CASES
@example([3, 70000], [1], torch.int32, torch.int64, Trial(9, "stepped", (1, 2)))
@given(
    st.lists(st.integers(1, 9), max_size=4),
    st.lists(st.integers(0, 3), unique=True, max_size=3),
    st.sampled_from(INTEGERS), st.one_of(st.none(), st.sampled_from(INTEGERS[:5])), trials,
)  # fmt: skip
def test_integers_are_summed_exactly_as_torch_sums_them(
    shape: list[int],
    places: list[int],
    dtype: torch.dtype,
    result: torch.dtype | None,
    trial: Trial,
) -> None:
    """Modulo the range of the result: the values are so large that sums overflow."""
    x = torch.randint(-(2**63), 2**63 - 1, shape, generator=trial.random).to(dtype)
    dim = [d for d in places if d < len(shape)]
    reduce = ops.npu_reduce_sum_batch_invariant
    torch.set_num_threads(trial.threads[0])
    found, wanted = reduce(x, dim, dtype=result), torch.sum(x, dim, dtype=result)
    assert_same_bits(found, wanted, "sum")
    torch.set_num_threads(trial.threads[1])
    strided = torch.stack([x, x], -1)[..., 0]
    kept = torch.sum(x, dim, True, dtype=result)
    assert_same_bits(reduce(strided, dim, True, dtype=result), kept, "kept, strides, threads")


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("result", FLOATS)
def test_integers_are_converted_first_where_the_result_is_not_one(
    dtype: torch.dtype, result: torch.dtype
) -> None:
    x = torch.randint(0, 2, (5, 4200), generator=Trial(10, "padded", (1, 1)).random).to(dtype)
    for name in ("sum", "mean"):
        reduce = getattr(ops, f"npu_reduce_{name}_batch_invariant")
        found = reduce(x, 1, dtype=result)
        assert_same_bits(found, reduce(x.to(result), 1), name)
        exact = getattr(x.double(), name)(1)
        assert_same_bits(found, exact.to(result), f"{name}, exact")


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
