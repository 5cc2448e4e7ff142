# SPDX-License-Identifier: Apache-2.0
"""Comparison of tensors bit by bit."""

from __future__ import annotations

import torch

_WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as integers: -0.0 differs from 0.0, and a NaN equals itself."""
    return tensor.detach().contiguous().view(_WORD[tensor.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(bits(a), bits(b)))


def assert_same_bits(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape, what
    different = bits(found) != bits(expected)
    count = int(different.sum())
    assert count == 0, f"{what}: {count} of {different.numel()} elements differ"
