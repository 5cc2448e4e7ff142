# SPDX-License-Identifier: Apache-2.0
"""Operators that give a row the same bits in any batch, each with the reason.

Names are without overload and without the underscore of an in-place form. What is listed as TESTED
is shown by tests/report/test_independence.py on the machine where the tests run; the other tables
rest on IEEE 754 or on what the operator is.
"""

from __future__ import annotations


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names.split())


# PyTorch computes the body of a tensor with vector code and the end of each thread's share with
# scalar code, so an element-wise operator is independent of the batch only where both round alike.
# IEEE 754 prescribes the result of each of these, or it is a choice or a comparison.
CORRECTLY_ROUNDED = _aten(
    "add sub rsub mul div neg abs sqrt reciprocal floor ceil trunc round sign maximum minimum clamp"
    " clamp_min clamp_max relu where masked_fill eq ne lt le gt ge isnan isinf isneginf isposinf"
    " logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not nan_to_num"
)

# Of those, the ones that also take a factor `alpha`: a + alpha * b is fused into one rounding by
# vector code only.
WITH_FACTOR = _aten("add sub rsub")

# Values are moved, repeated, picked by an index or converted to another type (one rounding).
MOVES = _aten(
    "clone copy _to_copy cat stack index index_select gather scatter index_copy index_fill"
    " index_put _index_put_impl embedding masked_select masked_scatter repeat repeat_interleave"
    " constant_pad_nd fill zero flip roll tril triu select_scatter slice_scatter nonzero resize set"
    " resolve_conj resolve_neg lift_fresh _local_scalar_dense equal contiguous _unsafe_view"
    " _pin_memory is_pinned empty_like zeros_like ones_like full_like new_empty new_zeros new_ones"
    " new_full new_empty_strided"
)

# Of those, the ones that add where asked to, in an order that depends on the other rows.
MAY_ACCUMULATE = _aten("index_put _index_put_impl scatter")

# Comparisons inside one row choose values or places; nothing is rounded.
CHOICES = _aten("topk sort argsort argmax argmin max min amax amin any all searchsorted kthvalue")

# Independent on the machines where the test passes: the reason says what the test shows.
TESTED: dict[str, str] = {
    "aten::exp": "vector and scalar code give the same bits",
    "aten::cumsum": "a row is summed in order by one thread",
    "_C::rotary_embedding": "each token and head is rotated by itself",
    "_C::greedy_argmax": "each row is searched by itself; the first of equal values wins",
    "_C::fused_gumbel_argmax": "each row has its own seed and is searched by itself",
}

# Made of calls that are traced and judged one by one: operators written in Python.
CONTAINERS = frozenset({"vllm", "vllm_ir"})
