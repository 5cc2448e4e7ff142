# SPDX-License-Identifier: Apache-2.0
"""Attention: within its bound, and one sequence of operations per query row, whatever the batch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from .bits import assert_same_bits, same_bits
from .bounds import assert_attention_within
from .trials import CASES, Trial, trials

ops = torch.ops.batch_invariant_ops
NAN = float("nan")


@dataclass(frozen=True)
class Shape:
    """Requests (query rows, keys), heads and the cache they lie in."""

    requests: list[tuple[int, int]]
    kv_heads: int
    group: int
    depth: int
    block_size: int
    dtype: torch.dtype
    causal: bool
    four_dimensions: bool


@dataclass
class Request:
    query: torch.Tensor  # [S, N, D]
    key: torch.Tensor  # [L, kv_heads, D]
    value: torch.Tensor


def make(shape: Shape, trial: Trial) -> list[Request]:
    def values(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=trial.random).to(shape.dtype)

    heads = shape.kv_heads * shape.group
    return [
        Request(
            values(s, heads, shape.depth),
            values(length, shape.kv_heads, shape.depth),
            values(length, shape.kv_heads, shape.depth),
        )
        for s, length in shape.requests
    ]


def attend(
    shape: Shape, requests: list[Request], trial: Trial, keys: list[int] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """One call over a paged cache whose blocks lie in random order among NaN. `keys` says how many
    of each request's keys exist already; the others are in the cache and must not be read."""
    size = shape.block_size
    lengths = [r.key.shape[0] for r in requests] if keys is None else keys
    needed = [-(-r.key.shape[0] // size) for r in requests]
    width = max(needed) + 1
    blocks = sum(needed) + 2
    order = trial.permutation(blocks)
    caches = [
        torch.full((blocks, size, shape.kv_heads, shape.depth), NAN, dtype=shape.dtype)
        for _ in range(2)
    ]
    # Unused entries of the table are garbage too: they must not be followed.
    table = torch.full((len(requests), width), -(2**31), dtype=torch.int32)
    taken = 0
    for row, request in enumerate(requests):
        for block in range(needed[row]):
            where = int(order[taken])
            taken += 1
            table[row, block] = where
            for cache, source in zip(caches, (request.key, request.value), strict=True):
                part = source[block * size : (block + 1) * size]
                cache[where, : part.shape[0]] = part
    if shape.four_dimensions:
        caches = [cache.transpose(1, 2).contiguous() for cache in caches]
    else:
        caches = [cache.flatten(2) for cache in caches]
    query = torch.cat([r.query for r in requests])
    out, lse = call(
        shape,
        query,
        caches[0],
        caches[1],
        ends=torch.tensor([r.query.shape[0] for r in requests]).cumsum(0).tolist(),
        lengths=lengths,
        block_table=table,
        block_size=size,
    )
    return out, lse


def call(
    shape: Shape,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: list[int],
    lengths: list[int],
    **more: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = ops.npu_fused_infer_attention_score_batch_invariant(
        query,
        key,
        value,
        actual_seq_lengths=ends,
        actual_seq_lengths_kv=lengths,
        num_heads=shape.kv_heads * shape.group,
        num_key_value_heads=shape.kv_heads,
        scale=shape.depth**-0.5,
        input_layout="TND",
        sparse_mode=3 if shape.causal else 0,
        softmax_lse_flag=True,
        **more,
    )
    return out, lse


def check(what: str, found: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> None:
    for name, one, other in zip(("attention", "lse"), found, wanted, strict=True):
        assert_same_bits(one, other, f"{name}: {what}")


few_keys, many_keys = st.integers(0, 40), st.sampled_from([127, 128, 129, 257, 400])
requests_of = st.lists(
    st.tuples(
        st.one_of(st.just(1), st.integers(1, 20), st.sampled_from([33, 65])),
        st.one_of(few_keys, few_keys, many_keys),
    ).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=5,
)
shapes = st.builds(
    Shape,
    requests_of,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([8, 16, 64, 80, 128]),
    st.sampled_from([16, 128]),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.booleans(),
    st.booleans(),
)


@CASES
@example(
    Shape([(1, 4500), (300, 300)], 1, 2, 64, 128, torch.bfloat16, True, True),
    Trial(1, "padded", (1, 2)),
)
@given(shapes, trials)
def test_attention(shape: Shape, trial: Trial) -> None:
    requests = make(shape, trial)
    torch.set_num_threads(trial.threads[0])
    out, lse = attend(shape, requests, trial)
    starts = torch.tensor([0] + [r.query.shape[0] for r in requests]).cumsum(0).tolist()
    own = [slice(a, b) for a, b in itertools.pairwise(starts)]

    for request, rows in zip(requests, own, strict=True):
        s, length = request.query.shape[0], request.key.shape[0]
        position = torch.arange(length - s, length).unsqueeze(1)
        visible = torch.arange(length) <= position if shape.causal else torch.ones(s, length) > 0
        assert_attention_within(
            out[rows],
            lse[rows],
            request.query,
            request.key.repeat_interleave(shape.group, 1),
            request.value.repeat_interleave(shape.group, 1),
            shape.depth**-0.5,
            visible,
        )

    torch.set_num_threads(trial.threads[1])
    check(f"{trial.threads} threads, blocks elsewhere", attend(shape, requests, trial), (out, lse))

    order = trial.permutation(len(requests)).tolist()
    rows_of = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in order])
    check(
        "another order of requests",
        attend(shape, [requests[i] for i in order], trial),
        (out[rows_of], lse[rows_of]),
    )

    i = trial.below(len(requests))
    request, rows = requests[i], own[i]
    check("a request alone", attend(shape, [request], trial), (out[rows], lse[rows]))

    s, length = request.query.shape[0], request.key.shape[0]
    last = Request(request.query[-1:], request.key, request.value)
    check(
        "the last row as a decode step",
        attend(shape, [last], trial),
        (out[rows][-1:], lse[rows][-1:]),
    )
    if shape.causal:
        cut = trial.below(s) + 1
        chunk = Request(request.query[:cut], request.key, request.value)
        exists = length - s + cut
        check(
            f"a chunk of {cut} of {s} rows, later keys not there yet",
            attend(shape, [chunk], trial, [exists]),
            (out[rows][:cut], lse[rows][:cut]),
        )

    unpaged = call(
        shape,
        trial.relaid(torch.cat([r.query for r in requests])),
        trial.relaid(torch.cat([r.key for r in requests])),
        trial.relaid(torch.cat([r.value for r in requests])),
        starts[1:],
        torch.tensor([r.key.shape[0] for r in requests]).cumsum(0).tolist(),
    )
    check("not paged, other strides", unpaged, (out, lse))


SMALL = Shape([(4, 9), (1, 30)], 2, 2, 16, 16, torch.float32, True, False)


def test_rows_that_see_no_key_are_zero() -> None:
    shape = Shape([(3, 3), (4, 4)], 1, 1, 8, 16, torch.float32, True, False)
    trial = Trial(2, "padded", (1, 1))
    requests = make(shape, trial)
    out, lse = attend(shape, requests, trial, [0, 2])
    assert out[:3].eq(0).all() and lse[:3].eq(-float("inf")).all()
    assert out[3:5].eq(0).all() and lse[3:5].eq(-float("inf")).all()
    assert out[5:].ne(0).all() and lse[5:].isfinite().all()


def test_stock_attention_is_not_invariant_on_such_inputs() -> None:
    """Torch's attention over a padded batch: a row's bits change with the padding somewhere."""
    trial = Trial(3, "padded", (1, 1))
    attention = torch.nn.functional.scaled_dot_product_attention
    differs = False
    for length in range(65, 513, 64):
        q, k, v = (torch.randn(1, 2, length, 64, generator=trial.random) for _ in range(3))
        whole = attention(q, k, v, is_causal=True)[:, :, -1:]
        differs |= not same_bits(attention(q[:, :, -1:], k, v), whole)
    assert differs


def test_out_writes_the_same_bits_where_the_caller_says() -> None:
    trial = Trial(4, "padded", (1, 1))
    requests = make(SMALL, trial)
    query = torch.cat([r.query for r in requests])
    keys, values = (torch.cat([getattr(r, x) for r in requests]) for x in ("key", "value"))
    wanted = call(SMALL, query, keys, values, [4, 5], [9, 39])
    arguments: dict[str, Any] = {
        "actual_seq_lengths": [4, 5],
        "actual_seq_lengths_kv": [9, 39],
        "num_heads": 4,
        "num_key_value_heads": 2,
        "scale": 0.25,
        "input_layout": "TND",
        "sparse_mode": 3,
        "softmax_lse_flag": True,
    }
    workspace = ops._npu_fused_infer_attention_score_batch_invariant_get_max_workspace(
        query, keys, values, **arguments
    )
    out = ops._npu_fused_infer_attention_score_batch_invariant_infer_output(
        query,
        values,
        input_layout="TND",
        num_heads=4,
        num_key_value_heads=2,
        softmax_lse_flag=True,
    )
    for target in (list(out), [trial.relaid(x) for x in out]):
        result = ops.npu_fused_infer_attention_score_batch_invariant.out(
            query, keys, values, **arguments, workspace=workspace, out=target
        )
        check("out", tuple(target), wanted)
        assert all(
            one.data_ptr() == two.data_ptr() for one, two in zip(result, target, strict=True)
        )


def test_torch_npus_causal_mask_changes_nothing_and_another_is_refused() -> None:
    trial = Trial(5, "padded", (1, 1))
    (request,) = make(Shape([(4, 9)], 2, 2, 16, 16, torch.float32, True, False), trial)
    run = (SMALL, request.query, request.key, request.value, [4], [9])
    wanted = call(*run)
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    for given_mask in (mask, mask.to(torch.int8), mask.to(torch.uint8)[None, None]):
        check("atten_mask", call(*run, atten_mask=given_mask), wanted)
    mask[5, 2] = True
    try:
        call(*run, atten_mask=mask)
    except NotImplementedError as error:
        assert "atten_mask" in str(error)
    else:
        raise AssertionError("a mask that is not causal was ignored")
