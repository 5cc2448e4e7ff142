# SPDX-License-Identifier: Apache-2.0
"""Names, schemas and registrations: what callers of the official wheel rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .bits import assert_same_bits

ops = torch.ops.batch_invariant_ops

# torch_npu 2.13.0's own registration, with its name left out.
ATTENTION = (
    "(Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, Tensor? atten_mask=None, "
    "SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, "
    "Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, "
    "Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? antiquant_scale=None, "
    "Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, "
    "Tensor? value_antiquant_offset=None, Tensor? block_table=None, "
    "Tensor? query_padding_size=None, Tensor? kv_padding_size=None, "
    "Tensor? key_shared_prefix=None, Tensor? value_shared_prefix=None, "
    "SymInt[]? actual_shared_prefix_len=None, Tensor? query_rope=None, Tensor? key_rope=None, "
    "Tensor? key_rope_antiquant_scale=None, int num_heads=1, float scale=1., "
    'int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout="BSH", '
    "int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, "
    "int antiquant_mode=0, int key_antiquant_mode=0, int value_antiquant_mode=0, "
    "bool softmax_lse_flag=False"
)
NAME = "npu_fused_infer_attention_score_batch_invariant"
EXPECTED = {
    "npu_mm_batch_invariant": "(Tensor a, Tensor b) -> Tensor",
    "npu_matmul_batch_invariant": "(Tensor a, Tensor b) -> Tensor",
    "npu_reduce_sum_batch_invariant": "(Tensor x, int dim, bool keepdim=False) -> Tensor",
    "npu_reduce_sum_batch_invariant.dims": "(Tensor x, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor",
    "npu_reduce_mean_batch_invariant": "(Tensor x, int dim, bool keepdim=False) -> Tensor",
    "npu_reduce_mean_batch_invariant.dims": "(Tensor x, int[1]? dim=None, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor",
    "npu_softmax_batch_invariant": "(Tensor x, int dim) -> Tensor",
    "npu_log_softmax_batch_invariant": "(Tensor x, int dim=-1) -> Tensor",
    "npu_rms_norm_batch_invariant": "(Tensor x, Tensor gamma, float epsilon=9.9999999999999995e-07)"
    " -> (Tensor, Tensor)",
    "npu_add_rms_norm_batch_invariant": "(Tensor x1, Tensor x2, Tensor gamma, "
    "float epsilon=9.9999999999999995e-07) -> (Tensor, Tensor, Tensor)",
    NAME: f"{ATTENTION}) -> (Tensor, Tensor)",
    f"{NAME}.out": f"{ATTENTION}, Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)",
    f"_{NAME}_get_max_workspace": f"{ATTENTION}) -> Tensor",
    f"_{NAME}_infer_output": '(Tensor query, Tensor value, *, str input_layout="BSH", '
    "Tensor? quant_scale2=None, Tensor? block_table=None, int num_heads=1, "
    "int num_key_value_heads=0, bool softmax_lse_flag=False, Tensor? query_rope=None) -> "
    "(Tensor, Tensor)",
}


def overload(name: str) -> Any:
    packet, _, which = name.partition(".")
    return getattr(getattr(ops, packet), which or "default")


@pytest.mark.parametrize("name", EXPECTED)
def test_schema_is_the_one_callers_use(name: str) -> None:
    assert str(overload(name)._schema) == f"batch_invariant_ops::{name}{EXPECTED[name]}"


def attention_arguments(paged: bool, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """vLLM-Ascend's way of calling it, on small tensors."""
    key = torch.randn(3, 16, 16, dtype=dtype) if paged else torch.randn(9, 2, 8, dtype=dtype)
    more: dict[str, Any] = {}
    if paged:
        table = torch.tensor([[1, 0], [2, 0]], dtype=torch.int32)
        more = {"block_table": table, "block_size": 16}
    return {
        "query": torch.randn(4, 4, 8, dtype=dtype),
        "key": key,
        "value": torch.randn_like(key),
        "actual_seq_lengths": [3, 4],
        "actual_seq_lengths_kv": [5, 4] if paged else [5, 9],
        "num_heads": 4,
        "num_key_value_heads": 2,
        "scale": 0.5,
        "input_layout": "TND",
        "sparse_mode": 3,
        **more,
    }


def batch_arguments(layout: str) -> dict[str, Any]:
    """Two requests of up to three rows, with a window of two keys before each row's own."""
    query, key, value = (torch.randn(2, s, n, 8) for s, n in ((3, 4), (5, 2), (5, 2)))

    def laid_out(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2) if layout == "BNSD" else x.flatten(2) if layout == "BSH" else x

    return {
        **{"query": laid_out(query), "key": laid_out(key), "value": laid_out(value)},
        **{"actual_seq_lengths": [3, 1], "actual_seq_lengths_kv": [5, 4]},
        **{"num_heads": 4, "num_key_value_heads": 2, "scale": 0.5, "input_layout": layout},
        **{"sparse_mode": 4, "pre_tokens": 2, "next_tokens": 0},
    }


def with_lse(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments | {"softmax_lse_flag": True}


X, Y, G = torch.randn(3, 5), torch.randn(3, 5), torch.randn(5)
WEIGHT, EXPERTS = torch.randn(4, 5), torch.randn(2, 4, 5)
ENDS = torch.tensor([1, 3])

# One call of each operator: name, positional and keyword arguments, as callers give them.
Call = tuple[str, tuple[Any, ...], dict[str, Any]]
CALLS: dict[str, Callable[[], Call]] = {
    "mm": lambda: ("npu_mm_batch_invariant", (X, WEIGHT.t()), {}),
    "matmul": lambda: ("npu_matmul_batch_invariant", (EXPERTS, X.t()), {}),
    "matmul of vectors": lambda: ("npu_matmul_batch_invariant", (G, G), {}),
    "sum": lambda: ("npu_reduce_sum_batch_invariant", (X, 0, True), {}),
    "sum over dims": lambda: ("npu_reduce_sum_batch_invariant.dims", (EXPERTS, [0, 2]), {}),
    "sum of integers": lambda: ("npu_reduce_sum_batch_invariant.dims", (ENDS,), {}),
    "mean": lambda: ("npu_reduce_mean_batch_invariant", (X, -1), {"keepdim": False}),
    "mean over dims": lambda: (
        "npu_reduce_mean_batch_invariant.dims",
        (EXPERTS, None, True),
        {"dtype": torch.bfloat16},
    ),
    "softmax": lambda: ("npu_softmax_batch_invariant", (X, 1), {}),
    "log_softmax": lambda: ("npu_log_softmax_batch_invariant", (X,), {"dim": 0}),
    "rms_norm": lambda: ("npu_rms_norm_batch_invariant", (X, G, 1e-5), {}),
    "add_rms_norm": lambda: ("npu_add_rms_norm_batch_invariant", (X, Y, G), {}),
    "linear": lambda: ("npu_linear_batch_invariant", (X, WEIGHT, WEIGHT[:, 0]), {}),
    "weight_pack": lambda: ("npu_weight_pack_batch_invariant", (EXPERTS,), {}),
    "linear_packed": lambda: (
        "npu_linear_packed_batch_invariant",
        (X, ops.npu_weight_pack_batch_invariant(WEIGHT), 4),
        {},
    ),
    "grouped_matmul": lambda: ("npu_grouped_matmul_batch_invariant", (X, EXPERTS, ENDS), {}),
    "grouped_matmul_packed": lambda: (
        "npu_grouped_matmul_packed_batch_invariant",
        (X, ops.npu_weight_pack_batch_invariant(EXPERTS), 4, ENDS),
        {},
    ),
    "attention, paged": lambda: (NAME, (), with_lse(attention_arguments(True))),
    "attention": lambda: (NAME, (), attention_arguments(False)),
    "attention, BSND": lambda: (NAME, (), with_lse(batch_arguments("BSND"))),
    "attention, BNSD": lambda: (NAME, (), with_lse(batch_arguments("BNSD"))),
    "attention, BSH": lambda: (NAME, (), batch_arguments("BSH")),
    "max_workspace": lambda: (f"_{NAME}_get_max_workspace", (), attention_arguments(True)),
    "infer_output": lambda: (
        f"_{NAME}_infer_output",
        (torch.randn(4, 4, 8), torch.randn(9, 2, 8)),
        {"input_layout": "TND", "num_heads": 4, "softmax_lse_flag": True},
    ),
    "infer_output, BSH": lambda: (
        f"_{NAME}_infer_output",
        (torch.randn(2, 3, 32), torch.randn(2, 5, 16)),
        {"num_heads": 4, "num_key_value_heads": 2, "softmax_lse_flag": True},
    ),
}
# What infer_output allocates has no contents that two runs could agree on.
WITH_CONTENTS = [which for which in CALLS if not which.startswith("infer_output")]


@pytest.mark.parametrize("which", CALLS)
def test_opcheck_finds_nothing(which: str) -> None:
    name, positional, keywords = CALLS[which]()
    if name == NAME or name.endswith("_get_max_workspace"):
        tensors = tuple(keywords.pop(argument) for argument in ("query", "key", "value"))
        positional = (*tensors, *positional)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if which in WITH_CONTENTS:
        checks.append("test_aot_dispatch_dynamic")
    passed = torch.library.opcheck(overload(name), positional, keywords, test_utils=checks)
    assert passed == dict.fromkeys(checks, "SUCCESS")


def to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("which", CALLS)
def test_meta_gives_the_shapes_types_and_strides_of_the_cpu(which: str) -> None:
    name, positional, keywords = CALLS[which]()
    found = overload(name)(
        *map(to_meta, positional), **{k: to_meta(v) for k, v in keywords.items()}
    )
    wanted = overload(name)(*positional, **keywords)
    if isinstance(wanted, torch.Tensor):
        found, wanted = (found,), (wanted,)
    for meta, real in zip(found, wanted, strict=True):
        assert meta.is_meta
        assert (meta.shape, meta.dtype, meta.stride()) == (real.shape, real.dtype, real.stride())


@pytest.mark.parametrize("which", CALLS)
def test_a_derivative_is_refused_not_wrong(which: str) -> None:
    name, positional, keywords = CALLS[which]()

    def tracked(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.clone().requires_grad_()
        return value

    result = overload(name)(
        *map(tracked, positional), **{key: tracked(value) for key, value in keywords.items()}
    )
    first = result if isinstance(result, torch.Tensor) else result[0]
    if not first.is_floating_point():
        assert not first.requires_grad
        return
    packet = name.partition(".")[0]
    with pytest.raises(RuntimeError, match=f"derivative for .*{packet}.* is not implemented"):
        first.sum().backward()


@pytest.mark.parametrize("which", WITH_CONTENTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_a_graph_break_it_gives_the_same_bits(which: str, dynamic: bool) -> None:
    name, positional, keywords = CALLS[which]()
    operator = overload(name)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *args, **kwargs: operator(*args, **kwargs),
        backend="aot_eager", fullgraph=True, dynamic=dynamic,
    )  # fmt: skip
    found, wanted = compiled(*positional, **keywords), operator(*positional, **keywords)
    if isinstance(wanted, torch.Tensor):
        found, wanted = (found,), (wanted,)
    for one, other in zip(found, wanted, strict=True):
        assert_same_bits(one, other, which)


@pytest.mark.parametrize("whose", ["the caller's", "the graph's"])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_out_is_written_though_its_schema_does_not_say_so(
    whose: str, backend: str
) -> None:
    arguments = with_lse(attention_arguments(True))
    wanted = overload(NAME)(**arguments)

    def run(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if whose == "the graph's":
            out, lse = out.clone(), lse.clone()
        overload(f"{NAME}.out")(**arguments, out=[out, lse])
        return out * 1, lse * 1

    torch._dynamo.reset()
    outs = torch.zeros_like(wanted[0]), torch.zeros_like(wanted[1])
    # torch's check of what an operator returns, which where CI is not set only warns.
    with torch._functorch.config.patch(error_on_custom_op_aliasing=True):
        found = torch.compile(run, backend=backend, fullgraph=True)(*outs)
    for one, other in zip(found, wanted, strict=True):
        assert_same_bits(one, other, "out")
    for one, other in zip(outs, wanted, strict=True):
        if whose == "the caller's":
            assert_same_bits(one, other, "the caller's tensor")
        else:
            assert not one.any()


@pytest.mark.slow
def test_inductor_compiles_a_layer_to_the_same_bits() -> None:
    weight = ops.npu_weight_pack_batch_invariant(torch.randn(16, 16))
    gamma, arguments = torch.randn(16), attention_arguments(True)
    query = arguments.pop("query")

    def layer(query: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = ops.npu_fused_infer_attention_score_batch_invariant(query, **arguments)[0].flatten(1)
        y, _, x = ops.npu_add_rms_norm_batch_invariant(x[:, :16], x[:, 16:], gamma)
        z = ops.npu_linear_packed_batch_invariant(y, weight, 16)
        return z + x, ops.npu_reduce_sum_batch_invariant(z, [0, 1], dtype=torch.bfloat16)

    torch._dynamo.reset()
    found = torch.compile(layer, fullgraph=True)(query)
    for one, other in zip(found, layer(query), strict=True):
        assert_same_bits(one, other, "inductor")


def test_operators_replace_atens_at_dispatcher_level() -> None:
    """What vLLM-Ascend does on its device's key, here on the CPU's."""
    library = torch.library.Library("aten", "IMPL")
    wanted = ops.npu_mm_batch_invariant(X, WEIGHT.t())
    library.impl("aten::mm", ops.npu_mm_batch_invariant, "CPU", allow_override=True)
    try:
        assert torch.equal(torch.mm(X, WEIGHT.t()), wanted)
        assert torch.equal(torch.nn.functional.linear(X, WEIGHT), wanted)
    finally:
        library._destroy()
