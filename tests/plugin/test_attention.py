# SPDX-License-Identifier: Apache-2.0
"""The attention backend: a faithful cache, causal attention, bits of the request alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_ascend.batch_invariant import operators
from vllm_ascend.batch_invariant.switch import ModeRefused

HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 64, 128


@pytest.fixture(scope="module", autouse=True)
def _operators() -> None:
    operators.require()


def layer() -> Any:
    from vllm_ascend.attention.backend import BatchInvariantAttention

    return BatchInvariantAttention(HEADS, DIM, DIM**-0.5, KV_HEADS)


def empty_cache(blocks: int, dtype: torch.dtype) -> torch.Tensor:
    """As vLLM hands it over: logical [blocks, kv_heads, block, 2 D] on memory LBNHC."""
    memory = torch.zeros(blocks, BLOCK, KV_HEADS, 2 * DIM, dtype=dtype)
    return memory.permute(0, 2, 1, 3)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view({4: torch.int32, 2: torch.int16}[x.element_size()])


class Request:
    """A request's queries, keys and values, and the blocks that hold its cache."""

    def __init__(self, length: int, blocks: list[int], seed: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.query, self.key, self.value = (
            torch.randn(length, heads, DIM, generator=generator).to(dtype)
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        self.length, self.blocks = length, blocks

    def slots(self, start: int, end: int) -> torch.Tensor:
        return torch.tensor(
            [self.blocks[p // BLOCK] * BLOCK + p % BLOCK for p in range(start, end)]
        )


def step(cache: torch.Tensor, parts: list[tuple[Request, int, int]]) -> list[torch.Tensor]:
    """One step: each request computes its rows start .. end; returns their outputs."""
    from vllm_ascend.attention.backend import BatchInvariantMetadata

    attention = layer()
    query, key, value = (
        torch.cat([getattr(r, name)[a:b] for r, a, b in parts])
        for name in ("query", "key", "value")
    )
    slots = torch.cat([r.slots(a, b) for r, a, b in parts])
    lengths = [b - a for _, a, b in parts]
    width = max(len(r.blocks) for r, _, _ in parts)
    table = torch.tensor([r.blocks + [0] * (width - len(r.blocks)) for r, _, _ in parts])
    attention.do_kv_cache_update(None, key, value, cache, slots)
    metadata = BatchInvariantMetadata(
        num_tokens=sum(lengths),
        query_ends=torch.tensor(lengths).cumsum(0).tolist(),
        key_lengths=[b for _, _, b in parts],
        block_table=table.to(torch.int32),
    )
    output = torch.empty_like(query)
    attention.forward(None, query, key, value, cache, metadata, output)
    return list(output.split(lengths))


def reference(request: Request) -> torch.Tensor:
    """Causal attention in float64."""
    query, key, value = (x.double() for x in (request.query, request.key, request.value))
    key, value = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * DIM**-0.5
    hidden = torch.ones(request.length, request.length).triu(1).bool()
    weights = scores.masked_fill(hidden, -float("inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value)


def test_the_cache_keeps_the_bits_it_is_given_and_touches_nothing_else() -> None:
    from vllm_ascend.attention.backend import split_cache

    request = Request(200, [3, 1], seed=0, dtype=torch.bfloat16)
    cache = empty_cache(5, torch.bfloat16)
    layer().do_kv_cache_update(
        None, request.key, request.value, cache, request.slots(0, request.length)
    )
    keys, values = split_cache(cache)
    for stored, given in ((keys, request.key), (values, request.value)):
        assert torch.equal(bits(stored[3]), bits(given[:BLOCK].reshape(BLOCK, -1)))
        assert torch.equal(bits(stored[1, :72]), bits(given[BLOCK:].reshape(72, -1)))
        assert not stored[1, 72:].any() and not stored[[0, 2, 4]].any()


def test_zeroing_a_block_of_vllms_view_zeroes_that_block_of_ours() -> None:
    from vllm_ascend.attention.backend import split_cache

    cache = empty_cache(3, torch.float32)
    cache.fill_(1.0)
    cache[1].zero_()
    for side in split_cache(cache):
        assert not side[1].any() and side[[0, 2]].all()


def test_a_negative_slot_is_padding_and_writes_nothing() -> None:
    cache = empty_cache(2, torch.float32)
    ones = torch.ones(2, KV_HEADS, DIM)
    layer().do_kv_cache_update(None, ones, ones, cache, torch.tensor([5, -1]))
    assert cache.count_nonzero() == 2 * KV_HEADS * DIM


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)]
)
def test_it_is_causal_attention(dtype: torch.dtype, tolerance: float) -> None:
    request = Request(300, [4, 0, 2], seed=1, dtype=dtype)
    (output,) = step(empty_cache(5, dtype), [(request, 0, 300)])
    assert (output.double() - reference(request)).abs().max() < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_its_bits_in_prefill_in_decode_and_among_others(
    dtype: torch.dtype, threads: int
) -> None:
    def requests() -> list[Request]:
        return [
            Request(260, [1, 2, 3], seed=2, dtype=dtype),
            Request(17, [4], seed=3, dtype=dtype),
            Request(129, [6, 5], seed=4, dtype=dtype),
        ]

    alone = [step(empty_cache(9, dtype), [(r, 0, r.length)])[0] for r in requests()]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # Prefill of one beside the decode of another, in another order.
        first, second, third = requests()
        cache = empty_cache(9, dtype)
        third_head, first_head = step(cache, [(third, 0, 128), (first, 0, 259)])
        second_all, first_last, third_last = step(
            cache, [(second, 0, 17), (first, 259, 260), (third, 128, 129)]
        )
    finally:
        torch.set_num_threads(before)
    assert torch.equal(bits(torch.cat([first_head, first_last])), bits(alone[0]))
    assert torch.equal(bits(second_all), bits(alone[1]))
    assert torch.equal(bits(torch.cat([third_head, third_last])), bits(alone[2]))


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ({"sliding_window": 64}, "a sliding window (64)"),
        ({"alibi_slopes": [0.5] * HEADS}, "ALiBi"),
        ({"logits_soft_cap": 30.0}, "a soft cap"),
        ({"sinks": torch.zeros(HEADS)}, "attention sinks"),
        ({"attn_type": "encoder_only"}, "attention of type encoder_only"),
    ],
)
def test_attention_that_the_operator_lacks_is_refused(argument: dict[str, Any], named: str) -> None:
    from vllm_ascend.attention.backend import BatchInvariantAttention

    with pytest.raises(ModeRefused) as error:
        BatchInvariantAttention(HEADS, DIM, 1.0, KV_HEADS, **argument)
    assert named in str(error.value)


def test_attention_that_is_not_causal_is_refused() -> None:
    from vllm_ascend.attention.backend import BatchInvariantMetadataBuilder

    builder = BatchInvariantMetadataBuilder(None, [], None, torch.device("cpu"))
    with pytest.raises(ModeRefused, match="must be causal"):
        builder.build(0, SimpleNamespace(causal=False))
