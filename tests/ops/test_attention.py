# SPDX-License-Identifier: Apache-2.0
"""Attention: within its bound, and one sequence of operations per query row, whatever the batch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from .bits import assert_same_bits, same_bits
from .bounds import assert_attention_within
from .trials import CASES, Trial, dtypes, trials

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
    sparse_mode: int
    band: tuple[int, int]  # pre_tokens, next_tokens: of a meaning in sparse_mode 4 alone
    four_dimensions: bool

    @property
    def scale(self) -> float:
        return float(self.depth**-0.5)

    def visible(self, request: Request) -> torch.Tensor:
        """[S, L]: which keys a query row sees."""
        s, length = request.query.shape[0], request.key.shape[0]
        own = torch.arange(length - s, length).unsqueeze(1)
        keys = torch.arange(length).expand(s, length)
        if self.sparse_mode == 0:
            return keys >= 0
        if self.sparse_mode == 3:
            return keys <= own
        before, after = self.band
        return (keys >= own - before) & (keys <= own + after)

    def options(self) -> dict[str, Any]:
        return {
            "num_heads": self.kv_heads * self.group,
            "num_key_value_heads": self.kv_heads,
            "scale": self.scale,
            "sparse_mode": self.sparse_mode,
            "pre_tokens": self.band[0],
            "next_tokens": self.band[1],
            "softmax_lse_flag": True,
        }


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
        input_layout="TND",
        **shape.options(),
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
    st.sampled_from([16, 32, 48, 64, 128]),
    dtypes,
    st.sampled_from([0, 3, 4]),
    st.tuples(st.sampled_from([0, 7, 130, 2**31 - 1]), st.sampled_from([0, 0, 5, 200])),
    st.booleans(),
)


@CASES
@example(
    Shape([(1, 4500), (300, 300)], 1, 2, 64, 128, torch.bfloat16, 3, (0, 0), True),
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
        assert_attention_within(
            out[rows],
            lse[rows],
            request.query,
            request.key.repeat_interleave(shape.group, 1),
            request.value.repeat_interleave(shape.group, 1),
            shape.scale,
            shape.visible(request),
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
    if shape.sparse_mode == 3 or (shape.sparse_mode == 4 and shape.band[1] == 0):
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


SMALL = Shape([(4, 9), (1, 30)], 2, 2, 16, 16, torch.float32, 3, (0, 0), False)


def laid_out(layout: str, x: torch.Tensor) -> torch.Tensor:
    """[B, S, N, D] as one of the layouts; D may be 1, as for the log-sum-exp."""
    if layout == "BNSD":
        return x.transpose(1, 2).contiguous()
    return x.flatten(2) if layout == "BSH" else x


@CASES
@example(
    replace(SMALL, requests=[(65, 65), (1, 400)], dtype=torch.float16),
    "BNSD",
    True,
    Trial(6, "padded", (1, 2)),
)
@given(shapes, st.sampled_from(["BSND", "BNSD", "BSH"]), st.booleans(), trials)
def test_every_layout_gives_a_request_the_bits_it_has_in_TND(
    shape: Shape, layout: str, paged: bool, trial: Trial
) -> None:
    requests = make(shape, trial)
    rows, keys = (max(lengths) for lengths in zip(*shape.requests, strict=True))
    # Padding is NaN: it must not be read. A request's rows beyond its length are zero.
    batch = {
        name: torch.nn.utils.rnn.pad_sequence(
            [getattr(r, name) for r in requests], batch_first=True, padding_value=NAN
        )
        for name in ("query", "key", "value")
    }
    more: dict[str, Any] = {}
    if paged:  # one block after another
        size = shape.block_size
        width = -(-keys // size)
        for name in ("key", "value"):
            padding = (0, 0, 0, 0, 0, width * size - keys)
            cache = torch.nn.functional.pad(batch[name], padding, value=NAN)
            cache = cache.reshape(-1, size, shape.kv_heads, shape.depth)
            batch[name] = cache.transpose(1, 2) if shape.four_dimensions else cache.flatten(2)
        table = torch.arange(len(requests) * width, dtype=torch.int32).reshape(-1, width)
        more = {"block_table": table, "block_size": size}
    else:
        for name in ("key", "value"):
            batch[name] = trial.relaid(laid_out(layout, batch[name]))
    torch.set_num_threads(trial.threads[0])
    out, lse = ops.npu_fused_infer_attention_score_batch_invariant(
        trial.relaid(laid_out(layout, batch["query"])),
        batch["key"],
        batch["value"],
        actual_seq_lengths=[s for s, _ in shape.requests],
        actual_seq_lengths_kv=[length for _, length in shape.requests],
        input_layout=layout,
        **shape.options(),
        **more,
    )
    heads = shape.kv_heads * shape.group
    padded = batch["query"].shape
    assert out.shape == laid_out(layout, batch["query"]).shape
    assert lse.shape == (len(requests), heads, rows, 1)
    out = out.transpose(1, 2) if layout == "BNSD" else out.reshape(padded)
    torch.set_num_threads(trial.threads[1])
    for row, request in enumerate(requests):
        s = request.query.shape[0]
        alone = call(shape, request.query, request.key, request.value, [s], [request.key.shape[0]])
        check(f"{layout}, request {row}", (out[row, :s], lse[row, :, :s].transpose(0, 1)), alone)
        assert out[row, s:].eq(0).all() and lse[row, :, s:].eq(-float("inf")).all()


@pytest.mark.parametrize("layout", ["BSND", "BNSD", "BSH"])
def test_lengths_that_are_left_out_or_shared(layout: str) -> None:
    trial = Trial(7, "padded", (1, 1))
    query = trial.values(3, 5, 4, 16, dtype=torch.float32)
    key, value = (trial.values(3, 9, 2, 16, dtype=torch.float32) for _ in range(2))

    def run(**lengths: list[int]) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = ops.npu_fused_infer_attention_score_batch_invariant(
            *(laid_out(layout, x) for x in (query, key, value)),
            input_layout=layout, **SMALL.options(), **lengths,
        )  # fmt: skip
        return found

    whole = run(actual_seq_lengths=[5] * 3, actual_seq_lengths_kv=[9] * 3)
    check("no lengths: all rows and keys", run(), whole)
    part = run(actual_seq_lengths=[4] * 3, actual_seq_lengths_kv=[7] * 3)
    assert not same_bits(part[0], whole[0])
    check("one length for all", run(actual_seq_lengths=[4], actual_seq_lengths_kv=[7]), part)


def test_rows_that_see_no_key_are_zero() -> None:
    shape = Shape([(3, 3), (4, 4)], 1, 1, 8, 16, torch.float32, 3, (0, 0), False)
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


@pytest.mark.parametrize("layout", ["TND", "BSND", "BNSD", "BSH"])
def test_out_writes_the_same_bits_where_the_caller_says(layout: str) -> None:
    trial = Trial(4, "padded", (1, 1))
    query = trial.values(2, 5, 4, 16, dtype=torch.float32)
    keys, values = (trial.values(2, 9, 2, 16, dtype=torch.float32) for _ in range(2))
    arguments = SMALL.options() | {"input_layout": layout}
    if layout == "TND":
        query, keys, values = (x.flatten(0, 1) for x in (query, keys, values))
        arguments |= {"actual_seq_lengths": [4, 10], "actual_seq_lengths_kv": [9, 18]}
    else:
        query, keys, values = (laid_out(layout, x) for x in (query, keys, values))
    wanted = ops.npu_fused_infer_attention_score_batch_invariant(query, keys, values, **arguments)
    workspace = ops._npu_fused_infer_attention_score_batch_invariant_get_max_workspace(
        query, keys, values, **arguments
    )
    out = ops._npu_fused_infer_attention_score_batch_invariant_infer_output(
        query,
        values,
        input_layout=layout,
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
    (request,) = make(replace(SMALL, requests=[(4, 9)]), trial)
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
