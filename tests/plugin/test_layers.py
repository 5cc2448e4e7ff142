# SPDX-License-Identifier: Apache-2.0
"""Linear layers, norms and experts: right, and the bits of a row are its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from vllm_ascend.batch_invariant import moe, norms, operators
from vllm_ascend.batch_invariant.linear import PackedLinear

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(scope="module", autouse=True)
def _operators() -> None:
    operators.require()


def random(*shape: int, dtype: torch.dtype, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator)).to(dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view({4: torch.int32, 2: torch.int16}[x.element_size()])


def assert_close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.dtype == dtype
    scale = expected.abs().max()
    assert (found.double() - expected.double()).abs().max() <= TOLERANCE[dtype] * scale


def assert_rows_have_their_own_bits(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> None:
    """Rows in another order, number and company, on one and on two threads."""
    before = torch.get_num_threads()
    whole = function(x)
    order = torch.randperm(x.shape[0], generator=torch.Generator().manual_seed(1))
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert torch.equal(bits(function(x[order])), bits(whole[order]))
            for size in (1, 3, 8):
                for start in range(0, x.shape[0], size):
                    part = slice(start, start + size)
                    assert torch.equal(bits(function(x[part])), bits(whole[part]))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_a_packed_linear_layer(dtype: torch.dtype, lazily: bool, biased: bool) -> None:
    x, weight = random(37, 200, dtype=dtype), random(131, 200, dtype=dtype, seed=1)
    bias = random(131, dtype=dtype, seed=2) if biased else None
    linear = PackedLinear(weight, lazily=lazily)
    expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert_close(linear(x, None, bias), expected, dtype)
    assert torch.equal(linear(x.view(37, 1, 200), None, bias), linear(x, None, bias)[:, None])
    assert_rows_have_their_own_bits(lambda rows: linear(rows, None, bias), x)


def test_packing_lets_go_of_the_weight() -> None:
    import weakref

    weight = random(64, 64, dtype=torch.float32)
    reference = weakref.ref(weight)
    linear = PackedLinear(weight)
    del weight
    assert reference() is None
    assert linear(torch.ones(1, 64), None).shape == (1, 64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_with_and_without_the_residual(dtype: torch.dtype) -> None:
    x, residual = random(19, 256, dtype=dtype), random(19, 256, dtype=dtype, seed=1)
    weight = random(256, dtype=dtype, seed=2)

    def expected(total: torch.Tensor) -> torch.Tensor:
        wide = total.double()
        return wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()

    assert_close(norms.rms_norm(x, weight, 1e-6), expected(x), dtype)
    out, total = norms.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(bits(total), bits((x.float() + residual.float()).to(dtype)))
    assert_close(out, expected(total), dtype)
    assert_rows_have_their_own_bits(lambda rows: norms.rms_norm(rows, weight, 1e-6), x)


def test_rms_norm_of_heads_inside_of_a_fused_projection() -> None:
    """Queries are a strided view of the projection's output: [T, heads, D]."""
    fused = random(11, 6 * 32, dtype=torch.bfloat16)
    weight = random(32, dtype=torch.bfloat16, seed=1)
    heads = fused[:, 32:160].view(11, 4, 32)
    assert torch.equal(
        norms.rms_norm(heads, weight, 1e-6), norms.rms_norm(heads.contiguous(), weight, 1e-6)
    )


EXPERTS, SLOTS, HIDDEN, INTERMEDIATE = 8, 3, 96, 80


def routed(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    x = random(29, HIDDEN, dtype=dtype)
    w13 = random(EXPERTS, 2 * INTERMEDIATE, HIDDEN, dtype=dtype, seed=1, scale=HIDDEN**-0.5)
    w2 = random(EXPERTS, HIDDEN, INTERMEDIATE, dtype=dtype, seed=2, scale=INTERMEDIATE**-0.5)
    weights, ids = random(29, EXPERTS, dtype=torch.float32, seed=3).softmax(-1).topk(SLOTS)
    return x, w13, w2, weights, ids.to(torch.int32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_experts(dtype: torch.dtype) -> None:
    x, w13, w2, weights, ids = routed(dtype)
    pack = operators.get("npu_weight_pack_batch_invariant")
    packed = pack(w13), pack(w2)

    def run(rows: torch.Tensor) -> torch.Tensor:
        # A row finds its router slots again by its contents.
        index = torch.cat([(x == row).all(1).nonzero()[0] for row in rows])
        return moe.experts(rows, *packed, INTERMEDIATE, weights[index], ids[index], EXPERTS)

    expected = torch.zeros(29, HIDDEN, dtype=torch.float64)
    for token in range(29):
        for weight, expert in zip(weights[token], ids[token], strict=True):
            gate, up = (w13[expert].double() @ x[token].double()).split(INTERMEDIATE)
            expected[token] += weight.double() * (w2[expert].double() @ (F.silu(gate) * up))
    assert_close(run(x), expected, dtype)
    assert_rows_have_their_own_bits(run, x)


def test_an_expert_that_gets_no_token() -> None:
    x, w13, w2, weights, _ = routed(torch.float32)
    pack = operators.get("npu_weight_pack_batch_invariant")
    ids = torch.full((29, SLOTS), 5)
    out = moe.experts(x, pack(w13), pack(w2), INTERMEDIATE, weights, ids, EXPERTS)
    gate, up = (x @ w13[5].t()).split(INTERMEDIATE, dim=1)
    expected = weights.sum(1, keepdim=True) * ((F.silu(gate) * up) @ w2[5].t())
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
