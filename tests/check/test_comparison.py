# SPDX-License-Identifier: Apache-2.0
"""A difference of one bit is found, and nothing else is called one."""

from __future__ import annotations

import math
import struct

import pytest

from vllm_ascend.batch_invariant.check.comparison import bits, compare, first_difference, render


def neighbour(value: float) -> float:
    """The next float32 away from zero."""
    (word,) = struct.unpack(">I", struct.pack(">f", value))
    (changed,) = struct.unpack(">f", struct.pack(">I", word + 1))
    return float(changed)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.5, -math.inf, 2.0**-149, -87.0 - 2.0**-17])
def test_bits_are_those_of_the_float32(value: float) -> None:
    (back,) = struct.unpack(">f", bytes.fromhex(bits(value)))
    assert back == value and math.copysign(1, back) == math.copysign(1, value)


def test_zero_and_minus_zero_differ() -> None:
    assert bits(0.0) != bits(-0.0)


def test_a_float64_is_refused_rather_than_rounded() -> None:
    with pytest.raises(ValueError, match="not a float32"):
        bits(-0.1)


def test_one_bit_of_one_logprob_is_a_difference() -> None:
    value = -1.25
    same = [render(3, 1, [(3, value), (4, -2.0)]), render(5, 2, [(4, -1.0), (5, value)])]
    changed = [same[0], render(5, 2, [(4, -1.0), (5, neighbour(value))])]
    assert first_difference("r", "batch of 2", same, list(same)) is None
    difference = first_difference("r", "batch of 2", same, changed)
    assert difference is not None
    assert (difference.position, difference.kind) == (1, "logprob")
    assert "5:bfa00001 instead of 5:bfa00000" in difference.describe()


def test_another_token_is_named_as_such() -> None:
    difference = first_difference(
        "r", "w", [render(3, 1, [(3, -1.0)])], [render(4, 1, [(4, -1.0)])]
    )
    assert difference is not None and difference.kind == "token"
    assert difference.describe() == "w: r, token 0: token 4 instead of 3"


def test_a_missing_token_is_a_difference() -> None:
    whole = [render(3, 1, [(3, -1.0)])] * 2
    difference = first_difference("r", "w", whole, whole[:1])
    assert difference is not None and difference.position == 1
    assert "token none instead of 3" in difference.describe()


def test_order_and_rank_of_logprobs_count() -> None:
    first = render(3, 1, [(3, -1.0), (4, -1.0), (5, -1.0)])
    assert first != render(3, 1, [(3, -1.0), (5, -1.0), (4, -1.0)])
    assert first != render(3, 2, [(3, -1.0), (4, -1.0), (5, -1.0)])


def test_a_comparison_counts_each_run_of_a_request() -> None:
    good, bad = (render(1, 1, [(1, -1.0)]),), (render(2, 1, [(2, -1.0)]),)
    comparison = compare("w", {"a": good, "b": good}, [("a", good), ("b", bad), ("a", good)])
    assert (comparison.compared, comparison.identical) == (3, 2)
    assert [d.request for d in comparison.differences] == ["b"]
