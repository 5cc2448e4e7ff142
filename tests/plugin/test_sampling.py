# SPDX-License-Identifier: Apache-2.0
"""A row of the sampler gets the same answer whatever the other rows ask for."""

from __future__ import annotations

import pytest
import torch

from vllm_ascend.batch_invariant.sampling import largest, top_k_top_p

VOCABULARY = 1000


def logits(rows: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(rows, VOCABULARY, generator=generator)).to(dtype).float()


def test_the_largest_are_those_of_topk() -> None:
    values, index = largest(logits(8), 20)
    expected = logits(8).topk(20, dim=-1)
    assert torch.equal(values, expected.values) and torch.equal(index, expected.indices)


def test_the_largest_5_are_the_first_of_the_largest_20_even_among_equals() -> None:
    tied = logits(64, dtype=torch.bfloat16).round()
    few, many = largest(tied, 5)[1], largest(tied, 20)[1]
    assert torch.equal(few, many[:, :5])
    assert torch.equal(tied.gather(1, few), tied.topk(5).values)


def test_control_topk_breaks_ties_differently_for_5_and_for_20() -> None:
    tied = logits(64, dtype=torch.bfloat16).round()
    assert not torch.equal(tied.topk(5).indices, tied.topk(20).indices[:, :5])


def test_equal_ones_come_in_the_order_of_their_index() -> None:
    assert largest(torch.zeros(2, 7), 3)[1].tolist() == [[0, 1, 2]] * 2


def test_none_of_the_largest() -> None:
    assert largest(logits(2), 0)[0].shape == (2, 0)


@pytest.mark.parametrize("k", [None, 1, 7, VOCABULARY])
@pytest.mark.parametrize("p", [None, 0.01, 0.5, 1.0])
def test_masks_what_vllm_masks(k: int | None, p: float | None) -> None:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    rows = 6
    k_rows = None if k is None else torch.full((rows,), k)
    p_rows = None if p is None else torch.full((rows,), p)
    expected = apply_top_k_top_p_pytorch(logits(rows), k_rows, p_rows, allow_cpu_sync=True)
    assert torch.equal(top_k_top_p(logits(rows), k_rows, p_rows), expected)


def test_a_row_is_masked_alike_alone_and_beside_rows_with_other_wishes() -> None:
    batch = logits(4)
    batch[0, :100] = -300.0  # probability 0 in float32
    k = torch.tensor([VOCABULARY, 5, VOCABULARY, 9])
    p = torch.tensor([1.0, 1.0, 0.7, 0.3])
    together = top_k_top_p(batch.clone(), k, p)
    assert torch.equal(together[0:1], top_k_top_p(batch[0:1].clone(), None, None))
    assert torch.equal(together[1:2], top_k_top_p(batch[1:2].clone(), k[1:2], None))
    assert torch.equal(together[2:3], top_k_top_p(batch[2:3].clone(), None, p[2:3]))
    assert torch.equal(together[3:4], top_k_top_p(batch[3:4].clone(), k[3:4], p[3:4]))


def test_control_vllm_masks_a_row_differently_beside_one_with_top_p() -> None:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    batch = logits(2)
    batch[0, :100] = -300.0
    together = apply_top_k_top_p_pytorch(batch.clone(), None, torch.tensor([1.0, 0.7]))
    assert not torch.equal(together[0], batch[0])
