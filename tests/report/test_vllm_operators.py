# SPDX-License-Identifier: Apache-2.0
"""Operators of vLLM's C++ extension that the report calls independent of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

HEADS, HEAD = 3, 64


@pytest.fixture(scope="module", autouse=True)
def extension() -> None:
    from vllm.platforms.cpu import CpuPlatform

    CpuPlatform.import_kernels()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def rotary_embedding(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    angles = torch.outer(torch.arange(512).float(), 10000.0 ** -(torch.arange(0, HEAD, 2) / HEAD))
    cache = torch.cat((angles.cos(), angles.sin()), 1).to(x.dtype)
    query = x[:, : HEADS * HEAD].contiguous()
    key = x[:, HEADS * HEAD : (HEADS + 1) * HEAD].contiguous()
    torch.ops._C.rotary_embedding(row, query, key, HEAD, cache, True)
    return torch.cat((query, key), 1)


def greedy_argmax(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.ops._C.greedy_argmax(x.float())
    return found.view(-1, 1)


def fused_gumbel_argmax(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.ops._C.fused_gumbel_argmax(x.float(), row + 17)
    return found.view(-1, 1)


# (x [M, N], the rows' own numbers [M]) -> [M, ...]
VLLM_OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "_C::rotary_embedding": rotary_embedding,
    "_C::greedy_argmax": greedy_argmax,
    "_C::fused_gumbel_argmax": fused_gumbel_argmax,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", VLLM_OPERATORS)
def test_a_row_does_not_depend_on_the_others(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 2051, generator=generator).to(dtype)
    row = torch.arange(64)
    function = VLLM_OPERATORS[name]
    torch.set_num_threads(1)
    whole = function(x.clone(), row)
    for threads, size in ((1, 1), (1, 3), (2, 64), (2, 1), (2, 7)):
        torch.set_num_threads(threads)
        parts = zip(x.split(size), row.split(size), strict=True)
        got = torch.cat([function(part.clone(), own) for part, own in parts])
        assert torch.equal(got.view(torch.uint8), whole.view(torch.uint8)), (threads, size)


def test_greedy_takes_the_first_of_equal_values() -> None:
    x = torch.zeros(5, 2051, dtype=torch.float32)
    x[:, [7, 1500, 2050]] = 1.0
    assert torch.ops._C.greedy_argmax(x).tolist() == [7] * 5


def test_another_seed_draws_another_token() -> None:
    x = torch.zeros(64, 2051)
    seeds = torch.arange(64)
    drawn = torch.ops._C.fused_gumbel_argmax(x, seeds)
    assert torch.equal(drawn, torch.ops._C.fused_gumbel_argmax(x.clone(), seeds))
    assert len(set(drawn.flatten().tolist())) > 32
