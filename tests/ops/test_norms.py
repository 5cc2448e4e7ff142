# SPDX-License-Identifier: Apache-2.0
"""rms_norm and add_rms_norm: within their bounds, independent of the other rows."""

from __future__ import annotations

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from .bits import assert_same_bits, same_bits
from .bounds import assert_rms_norm_within
from .trials import CASES, Trial, assert_rows_are_independent, dtypes, sizes, trials

ops = torch.ops.batch_invariant_ops

rows = sizes(40, 256, 257)
widths = sizes(200, 255, 1000, 2048, 4097, 5001)
epsilons = st.sampled_from([1e-6, 1e-5, 0.0, 1e-2])


@CASES
@example(300, 4097, torch.float32, 1e-6, False, Trial(1, "padded", (1, 2)))
@given(rows, widths, dtypes, epsilons, st.booleans(), trials)
def test_rms_norm(
    m: int, d: int, dtype: torch.dtype, epsilon: float, wide_gamma: bool, trial: Trial
) -> None:
    x = trial.values(m, d, dtype=dtype)
    gamma = trial.values(d, dtype=torch.float32 if wide_gamma else dtype)
    y, rstd = assert_rows_are_independent(
        lambda r: ops.npu_rms_norm_batch_invariant(r, gamma, epsilon), [x], trial
    )
    assert rstd.dtype == torch.float32 and rstd.shape == (m, 1)
    assert_rms_norm_within(y, rstd, x, gamma, epsilon)
    again, _ = ops.npu_rms_norm_batch_invariant(x, trial.relaid(gamma), epsilon)
    assert_same_bits(again, y, "strides of gamma")
    three, _ = ops.npu_rms_norm_batch_invariant(x.reshape(m, 1, d), gamma, epsilon)
    assert_same_bits(three.reshape(m, d), y, "three dimensions")


@CASES
@example(300, 4097, torch.bfloat16, 1e-6, Trial(2, "padded", (1, 2)))
@given(rows, widths, dtypes, epsilons, trials)
def test_add_rms_norm_is_an_addition_and_rms_norm(
    m: int, d: int, dtype: torch.dtype, epsilon: float, trial: Trial
) -> None:
    x1, x2 = trial.values(m, d, dtype=dtype), trial.values(m, d, dtype=dtype)
    gamma = trial.values(d, dtype=dtype)
    y, rstd, total = assert_rows_are_independent(
        lambda a, b: ops.npu_add_rms_norm_batch_invariant(a, b, gamma, epsilon), [x1, x2], trial
    )
    assert_same_bits(total, x1 + x2, "the sum")
    split_y, split_rstd = ops.npu_rms_norm_batch_invariant(total, gamma, epsilon)
    assert_same_bits(y, split_y, "addition, then rms_norm")
    assert_same_bits(rstd, split_rstd, "addition, then rms_norm: rstd")


def test_another_order_of_the_elements_gives_other_bits() -> None:
    """Torch's rms_norm was never seen to change; so show that the order of the sum does show."""
    trial = Trial(3, "padded", (1, 1))
    x, gamma = trial.values(64, 5000, dtype=torch.float32), torch.ones(5000)
    order = trial.permutation(5000)
    _, one = ops.npu_rms_norm_batch_invariant(x, gamma)
    _, other = ops.npu_rms_norm_batch_invariant(x[:, order], gamma)
    assert not same_bits(one, other)
