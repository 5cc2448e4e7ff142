# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: torch's kind of error, naming the operator and the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .bits import assert_same_bits
from .test_schemas import NAME, attention_arguments
from .trials import FLOATS

ops = torch.ops.batch_invariant_ops

mm = ops.npu_mm_batch_invariant
matmul = ops.npu_matmul_batch_invariant
linear = ops.npu_linear_batch_invariant
pack = ops.npu_weight_pack_batch_invariant
linear_packed = ops.npu_linear_packed_batch_invariant
grouped = ops.npu_grouped_matmul_batch_invariant
reduce_sum = ops.npu_reduce_sum_batch_invariant
reduce_mean = ops.npu_reduce_mean_batch_invariant
softmax = ops.npu_softmax_batch_invariant
log_softmax = ops.npu_log_softmax_batch_invariant
rms_norm = ops.npu_rms_norm_batch_invariant
add_rms_norm = ops.npu_add_rms_norm_batch_invariant
attention = ops.npu_fused_infer_attention_score_batch_invariant


def ones(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


BF16, F64, LONG = torch.bfloat16, torch.float64, torch.int64
ENDS = torch.tensor([1, 3])

WRONG = [
    (mm, (ones(2, 3), ones(4, 5)), "a and b shapes cannot be multiplied: [2, 3] and [4, 5]"),
    (mm, (ones(2, 3, 4), ones(4, 5)), "a must be a matrix, but has 3 dimensions"),
    (mm, (ones(2, 3), ones(3)), "b must be a matrix, but has 1 dimensions"),
    (mm, (ones(2, 3), ones(3, 2, dtype=BF16)), "a and b to have the same dtype"),
    (mm, (ones(2, 3, dtype=F64), ones(3, 2, dtype=F64)), "a has dtype Double"),
    (mm, (ones(2, 3, dtype=LONG), ones(3, 2, dtype=LONG)), "a has dtype Long"),
    (mm, (ones(2, 3), ones(3, 2, device="meta")), "b is on meta and a is on cpu"),
    (matmul, (ones(2, 2, 3), ones(3, 3, 4)), "tensor a (2) must match the size of tensor b (3)"),
    (matmul, (ones(), ones(3)), "expected a to have at least 1 dimension"),
    (matmul, (ones(3), ones()), "expected b to have at least 1 dimension"),
    (matmul, (ones(3), ones(4)), "a and b shapes cannot be multiplied"),
    (linear, (ones(2, 3), ones(4, 5)), "x and weight shapes cannot be multiplied"),
    (linear, (ones(2, 3), ones(3)), "weight must be a matrix [N, K]"),
    (linear, (ones(2, 3), ones(4, 3), ones(3)), "expected bias of size 4"),
    (linear, (ones(2, 3), ones(4, 3), ones(1, 4)), "bias must be a vector"),
    (linear, (ones(2, 3), ones(4, 3), ones(4, dtype=BF16)), "x and bias to have the same dtype"),
    (pack, (ones(3),), "weight must be [N, K] or [E, N, K]"),
    (pack, (ones(3, 3, dtype=LONG),), "weight has dtype Long"),
    (linear_packed, (ones(2, 3), ones(4, 3), 4), "packed must be what"),
    (linear_packed, (ones(2, 3), pack(ones(400, 3)), 4), "packed has"),
    (linear_packed, (ones(2, 3), pack(ones(4, 3)), 4, ones(5)), "expected bias of size 4"),
    (linear_packed, (ones(2, 3), pack(ones(4, 3)), -1), "expected n >= 0"),
    (linear_packed, (ones(0, 4), torch.empty(0, dtype=torch.uint8), 2**62), "can exist: correct n"),
    (grouped, (ones(3), ones(2, 4, 3), ENDS), "x must be a matrix"),
    (grouped, (ones(3, 3), ones(4, 3), ENDS), "weight must be [E, N, K]"),
    (grouped, (ones(3, 3), ones(2, 4, 5), ENDS), "x and weight shapes cannot be multiplied"),
    (grouped, (ones(3, 3), ones(3, 4, 3), ENDS), "expected group_list of size 3"),
    (grouped, (ones(3, 3), ones(2, 4, 3), ENDS.int()), "expected group_list of dtype Long"),
    (grouped, (ones(3, 3), ones(2, 4, 3), ENDS.flip(0)), "group_list must be ascending"),
    (grouped, (ones(4, 3), ones(2, 4, 3), ENDS), "group_list to end at the 4 rows of x"),
    (reduce_sum, (ones(2, 3, dtype=F64), 0), "x has dtype Double"),
    (reduce_sum, (ones(2, 3), [0, -2]), "dim -2 appears more than once"),
    (reduce_mean, (ones(2, 3, dtype=LONG), 0), "x is Long; give a dtype"),
    (softmax, (ones(2, 3, dtype=F64), 0), "x has dtype Double"),
    (rms_norm, (ones(2, 3), ones(4)), "expected gamma of size 3"),
    (rms_norm, (ones(2, 3), ones(1, 3)), "gamma must be a vector"),
    (rms_norm, (ones(2, 3), ones(3, dtype=BF16)), "expected gamma of dtype Float"),
    (rms_norm, (ones(2, 3), ones(3, device="meta")), "gamma is on meta"),
    (rms_norm, (ones(2, 3), ones(3), -1.0), "eps"),
    (add_rms_norm, (ones(2, 3), ones(1, 3), ones(3)), "x1 and x2 of the same shape"),
    (add_rms_norm, (ones(2, 3), ones(2, 3, dtype=BF16), ones(3)), "x1 and x2 to have the same"),
]


@pytest.mark.parametrize(("operator", "arguments", "words"), WRONG)
def test_a_wrong_argument_is_named(operator: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        operator(*arguments)
    message = str(caught.value)
    assert words in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("operator", [reduce_sum, reduce_mean])
@pytest.mark.parametrize("dtype", [F64, torch.bool, torch.complex64])
def test_a_sum_in_a_type_that_is_not_known_is_refused(operator: Any, dtype: torch.dtype) -> None:
    with pytest.raises(NotImplementedError, match="is not supported: expected an integer type"):
        operator(ones(2, 3), 0, dtype=dtype)


@pytest.mark.parametrize("operator", [reduce_sum, reduce_mean, softmax, log_softmax])
@pytest.mark.parametrize("dim", [-3, 2])
def test_a_dimension_out_of_range_is_an_index_error(operator: Any, dim: int) -> None:
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got"):
        operator(ones(2, 3), dim)


FULL = {"pse_shift", "dequant_scale1", "quant_scale1", "dequant_scale2", "quant_scale2"} | {
    "quant_offset2",
    "antiquant_scale",
    "antiquant_offset",
    "key_antiquant_scale",
    "key_antiquant_offset",
    "value_antiquant_scale",
    "value_antiquant_offset",
    "query_padding_size",
    "kv_padding_size",
    "key_shared_prefix",
    "value_shared_prefix",
    "query_rope",
    "key_rope",
    "key_rope_antiquant_scale",
}
UNSUPPORTED: dict[str, Any] = {name: torch.ones(1) for name in sorted(FULL)} | {
    "actual_shared_prefix_len": [1],
    "antiquant_mode": 1,
    "key_antiquant_mode": 1,
    "value_antiquant_mode": 1,
    "input_layout": "NSD",
    "sparse_mode": 2,
}


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_attention_refuses_what_it_does_not_support(name: str, device: str) -> None:
    arguments = attention_arguments(True) | {name: UNSUPPORTED[name]}
    arguments = {k: v.to(device) if torch.is_tensor(v) else v for k, v in arguments.items()}
    with pytest.raises(NotImplementedError, match=name):
        attention(**arguments)


def test_every_argument_of_attention_is_known_or_refused_by_name() -> None:
    """No argument of the schema is passed over: each is in the table of SCHEMAS.md or refused."""
    known = {
        *("query", "key", "value", "atten_mask", "actual_seq_lengths", "actual_seq_lengths_kv"),
        *("block_table", "num_heads", "scale", "pre_tokens", "next_tokens", "input_layout"),
        *("num_key_value_heads", "sparse_mode", "inner_precise", "block_size"),
        "softmax_lse_flag",
    }
    names = {argument.name for argument in getattr(ops, NAME).default._schema.arguments}
    assert names - set(UNSUPPORTED) - known == set()


MASK = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
TABLE = torch.tensor([[1, 0], [2, 0]], dtype=torch.int32)

WRONG_ATTENTION: list[tuple[bool, dict[str, Any], str]] = [
    (True, {"actual_seq_lengths": None}, "actual_seq_lengths is needed"),
    (True, {"actual_seq_lengths_kv": None}, "actual_seq_lengths_kv is needed"),
    (True, {"actual_seq_lengths": [4]}, "of the same length, but got 1 and 2"),
    (True, {"actual_seq_lengths": [3, 3]}, "actual_seq_lengths to end at the 4 rows of query"),
    (True, {"actual_seq_lengths": [5, 4]}, "actual_seq_lengths, ascending"),
    (False, {"actual_seq_lengths_kv": [5, 8]}, "actual_seq_lengths_kv to end at the 9 rows of key"),
    (False, {"actual_seq_lengths_kv": [5, 4]}, "actual_seq_lengths_kv, ascending"),
    (True, {"actual_seq_lengths_kv": [5, -1]}, "actual_seq_lengths_kv >= 0"),
    (True, {"actual_seq_lengths_kv": [5, 33]}, "holds 2 blocks of 16"),
    (True, {"block_table": TABLE.long()}, "block_table of dtype Int"),
    (True, {"block_table": TABLE[0]}, "block_table must be [requests, blocks]"),
    (True, {"block_table": TABLE[:1]}, "a row of block_table for each of 2 requests"),
    (True, {"block_size": 128}, "block_size is 128, but key has blocks of 16"),
    (False, {"block_size": 16}, "block_size is given, but block_table is not"),
    (True, {"num_heads": 8}, "expected query to have num_heads = 8 heads"),
    (True, {"num_heads": 0}, "num_heads > 0"),
    (True, {"num_key_value_heads": 3}, "num_heads to be a multiple of num_key_value_heads"),
    (False, {"num_key_value_heads": 4}, "expected key to have num_key_value_heads = 4"),
    (True, {"query": ones(4, 32)}, "expected query of shape [T, N, D]"),
    (True, {"query": ones(4, 4, 8), "input_layout": "BSND"}, "query of shape [B, S, N, D]"),
    (True, {"query": ones(4, 4, 9), "input_layout": "BSH"}, "the last extent of query"),
    (True, {"query": ones(2, 4, 2, 8), "input_layout": "BSND"}, "num_heads = 4 heads"),
    (False, {"query": ones(2, 4, 2, 8), "input_layout": "BNSD"}, "key of shape [B, N, S, D]"),
    (False, {"sparse_mode": 4, "next_tokens": -1}, "next_tokens of -1 is not supported"),
    (False, {"sparse_mode": 4, "pre_tokens": -1}, "pre_tokens of -1 is not supported"),
    (True, {"query": ones(4, 4, 9)}, "query and key of the same head size"),
    (True, {"query": ones(4, 4, 8, dtype=BF16)}, "query and key to have the same dtype"),
    (True, {"query": ones(4, 4, 8, dtype=F64)}, "query has dtype Double"),
    (True, {"value": ones(3, 16, 32)}, "key and value of the same shape"),
    (True, {"key": ones(3, 16), "value": ones(3, 16)}, "expected a paged key of shape"),
    (True, {"key": ones(3, 4, 16, 8), "value": ones(3, 4, 16, 8)}, "num_key_value_heads = 2"),
    (True, {"key": ones(3, 16, 17), "value": ones(3, 16, 17)}, "the last extent of key"),
    (True, {"atten_mask": ones(9, 9)}, "atten_mask of dtype Bool"),
    (True, {"atten_mask": MASK[:9, :9]}, "atten_mask of shape [2048, 2048]"),
    (True, {"atten_mask": MASK, "sparse_mode": 0}, "atten_mask is not supported with sparse_mode"),
    (True, {"inner_precise": 4}, "inner_precise in 0 .. 3"),
    (True, {"block_table": TABLE.to("meta")}, "block_table is on meta"),
]


@pytest.mark.parametrize(("paged", "change", "words"), WRONG_ATTENTION)
def test_a_wrong_argument_of_attention_is_named(
    paged: bool, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(RuntimeError) as caught:
        attention(**attention_arguments(paged) | change)
    message = str(caught.value)
    assert words in message and NAME in message
    assert len(message.splitlines()) == 1


Q, KV = ones(2, 3, 32), ones(2, 5, 16)
WRONG_BATCH: list[tuple[dict[str, Any], str]] = [
    ({"key": KV[:1], "value": KV[:1]}, "expected query and key of as many requests"),
    ({"actual_seq_lengths": [3, 3, 3]}, "actual_seq_lengths of 1 or 2 entries"),
    ({"actual_seq_lengths": [3, 4]}, "actual_seq_lengths[1] in 0 .. 3, but got 4"),
    ({"actual_seq_lengths_kv": [6]}, "actual_seq_lengths_kv[0] in 0 .. 5, but got 6"),
    ({"actual_seq_lengths_kv": [5, -1]}, "actual_seq_lengths_kv[1] in 0 .. 5, but got -1"),
    ({"key": ones(3, 16, 16), "value": ones(3, 16, 16), "block_table": TABLE},
     "actual_seq_lengths_kv is needed with a block_table"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG_BATCH)
def test_a_wrong_argument_of_a_layout_with_requests_is_named(
    change: dict[str, Any], words: str
) -> None:
    right: dict[str, Any] = {"num_heads": 4, "num_key_value_heads": 2, "input_layout": "BSH"}
    right |= {"query": Q, "key": KV, "value": KV}
    assert attention(**right)[0].shape == Q.shape
    with pytest.raises(RuntimeError) as caught:
        attention(**right | change)
    message = str(caught.value)
    assert words in message and NAME in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("entry", [-1, 3])
def test_a_block_out_of_range_is_an_index_error(entry: int) -> None:
    table = TABLE.clone()
    table[1, 0] = entry
    with pytest.raises(IndexError, match=rf"block_table\[1\]\[0\] is {entry}, but key has 3"):
        attention(**attention_arguments(True) | {"block_table": table})


def test_a_cache_is_never_copied() -> None:
    strided = torch.ones(3, 16, 32)[..., ::2]
    with pytest.raises(RuntimeError, match="key to be dense in its last dimension"):
        attention(**attention_arguments(True) | {"key": strided, "value": strided})


def test_out_is_checked() -> None:
    arguments = attention_arguments(False)
    right = [torch.empty(4, 4, 8), torch.empty(0)]
    for out, words in (
        (right[:1], "out to hold two tensors"),
        ([torch.empty(4, 4, 9), right[1]], r"out\[0\] of shape \[4, 4, 8\]"),
        ([torch.empty(4, 4, 8, dtype=BF16), right[1]], r"out\[0\] of dtype Float"),
        ([arguments["query"], right[1]], r"out\[0\] not to overlap query"),
    ):
        with pytest.raises(RuntimeError, match=words):
            attention.out(**arguments, out=out)
    with pytest.raises(RuntimeError, match=r"out\[1\] of shape \[4, 4, 1\]"):
        attention.out(**arguments, softmax_lse_flag=True, out=right)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nothing_to_do_gives_what_torch_gives(dtype: torch.dtype) -> None:
    for a, b in (((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4))):
        left, right = ones(*a, dtype=dtype), ones(*b, dtype=dtype)
        assert_same_bits(matmul(left, right), torch.matmul(left, right), f"{a} x {b}")
    bias = ones(4, dtype=dtype)
    assert_same_bits(linear(ones(2, 0, dtype=dtype), ones(4, 0, dtype=dtype), bias),
                     bias.expand(2, 4), "K = 0 with bias")  # fmt: skip
    empty = ones(2, 0, 3, dtype=dtype)
    for dim in range(3):
        for keepdim in (False, True):
            assert_same_bits(reduce_sum(empty, dim, keepdim), empty.sum(dim, keepdim), "sum")
            found, wanted = reduce_mean(empty, dim, keepdim), empty.mean(dim, keepdim)
            assert found.shape == wanted.shape and found.isnan().all()
        assert softmax(empty, dim).shape == log_softmax(empty, dim).shape == empty.shape
    y, rstd = rms_norm(ones(0, 3, dtype=dtype), ones(3, dtype=dtype))
    assert y.shape == (0, 3) and rstd.shape == (0, 1)
    y, rstd = rms_norm(ones(2, 0, dtype=dtype), ones(0, dtype=dtype))
    assert y.shape == (2, 0) and rstd.shape == (2, 1) and rstd.isnan().all()
    for dims in ([0, 1], [], None):
        assert_same_bits(reduce_sum(empty, dims), empty.sum(dims), f"sum over {dims}")
        integers = empty.long()
        assert_same_bits(reduce_sum(integers, dims), integers.sum(dims), f"integers over {dims}")
    assert grouped(ones(0, 3, dtype=dtype), ones(2, 4, 3, dtype=dtype), torch.tensor([0, 0])).shape == (0, 4)  # fmt: skip  # noqa: E501


def test_scalars_are_reduced_as_torch_reduces_them() -> None:
    x = torch.tensor(1.5)
    for dim in (0, -1):
        for keepdim in (False, True):
            assert_same_bits(reduce_sum(x, dim, keepdim), x.sum(dim, keepdim), "sum")
            assert_same_bits(reduce_mean(x, dim, keepdim), x.mean(dim, keepdim), "mean")
        assert_same_bits(softmax(x, dim), x.softmax(dim), "softmax")
        assert_same_bits(log_softmax(x, dim), x.log_softmax(dim), "log_softmax")


@pytest.mark.parametrize("shape", [(0, 3, 32), (2, 0, 32), (2, 3, 32)])
@pytest.mark.parametrize("keys", [0, 5])
def test_no_request_no_rows_and_no_keys_by_requests(shape: tuple[int, ...], keys: int) -> None:
    out, lse = attention(
        ones(*shape), ones(shape[0], keys, 16), ones(shape[0], keys, 16), num_heads=4,
        num_key_value_heads=2, input_layout="BSH", softmax_lse_flag=True,
    )  # fmt: skip
    assert out.shape == shape and lse.shape == (shape[0], 4, shape[1], 1)
    assert out.eq(1 if keys else 0).all() and (keys or lse.eq(-float("inf")).all())


def test_no_request_and_no_rows() -> None:
    out, lse = attention(
        ones(0, 4, 8), ones(0, 2, 8), ones(0, 2, 8), actual_seq_lengths=[],
        actual_seq_lengths_kv=[], num_heads=4, num_key_value_heads=2, input_layout="TND",
    )  # fmt: skip
    assert out.shape == (0, 4, 8) and lse.shape == (0,)
    arguments = attention_arguments(True) | {"actual_seq_lengths": [0, 4]}
    out, _ = attention(**arguments)
    assert out.isfinite().all()


def test_expanded_and_negated_views_are_read_as_they_are() -> None:
    row, b = torch.randn(1, 7), torch.randn(7, 5)
    wide = row.expand(4, 7)
    assert_same_bits(mm(wide, b), mm(wide.contiguous(), b), "expanded rows")
    column = torch.randn(4, 1).expand(4, 7)
    assert_same_bits(mm(column, b), mm(column.contiguous(), b), "expanded columns")
    assert_same_bits(reduce_sum(column, 1, False), reduce_sum(column.contiguous(), 1, False), "sum")
    negated = torch._neg_view(b)
    assert_same_bits(mm(wide, negated), mm(wide, (-b).contiguous()), "a negated view")
