# SPDX-License-Identifier: Apache-2.0
"""What the report calls independent of the batch is, bit for bit, on this machine.

Each operator gets many rows at once, the same rows in another number and place, and with another
number of threads. The same procedure finds operators that are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from vllm_ascend.batch_invariant.report.independence import (
    CHOICES,
    CORRECTLY_ROUNDED,
    MAY_ACCUMULATE,
    MOVES,
    TESTED,
    WITH_FACTOR,
)

Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def bits(x: torch.Tensor) -> torch.Tensor:
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.contiguous().view(words[x.element_size()])


def rows_that_change(function: Function, x: torch.Tensor) -> int:
    """Rows of x [M, N] whose result alone, or in another part of x, has other bits."""
    torch.set_num_threads(1)
    whole = bits(function(x.clone()))
    changed = torch.zeros(x.shape[0], dtype=torch.bool)
    for threads, size in ((1, 1), (1, 3), (2, x.shape[0]), (2, 1), (2, 7)):
        torch.set_num_threads(threads)
        parts = [bits(function(part.clone())) for part in x.split(size)]
        changed |= (torch.cat(parts) != whole).flatten(1).any(1)
    return int(changed.sum())


def values(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * columns)
    x = torch.randn(rows, columns, generator=generator) * 3
    return x.to(dtype)


DTYPES = (torch.float32, torch.bfloat16)
# Odd widths, so that rows begin at every offset in a vector; a wide one that threads share.
SHAPES = ((64, 37), (9, 33793))

ELEMENT_BY_ELEMENT: dict[str, Function] = {
    "aten::exp": torch.exp,
    "aten::add": lambda x: x + x.flip(1),
    "aten::mul": lambda x: x * x.flip(1),
    "aten::div": lambda x: x / x.flip(1),
    "aten::sqrt": lambda x: x.abs().sqrt(),
    "aten::reciprocal": torch.reciprocal,
    "aten::neg": torch.neg,
    "aten::rsub": lambda x: 1.0 - x,
    "aten::clamp": lambda x: x.clamp(-1, 1),
    "aten::where": lambda x: torch.where(x > 0, x, x.flip(1)),
    "aten::masked_fill": lambda x: x.masked_fill(x > 1, -torch.inf),
    "aten::_to_copy": lambda x: x.to(torch.bfloat16),
    "aten::ge": lambda x: x >= 0.5,
}

ROW_BY_ROW: dict[str, Function] = {
    "aten::cumsum": lambda x: x.cumsum(-1),
    "aten::sort": lambda x: x.sort(dim=-1, stable=True).indices,
    "aten::topk": lambda x: x.topk(20, -1).indices,
    "aten::argmax": lambda x: x.argmax(-1, keepdim=True),
    "aten::amax": lambda x: x.amax(-1, keepdim=True),
    "aten::max": lambda x: x.max(-1, keepdim=True).values,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ELEMENT_BY_ELEMENT)
def test_an_element_does_not_depend_on_its_place(name: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        assert rows_that_change(ELEMENT_BY_ELEMENT[name], values(*shape, dtype)) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_a_row_does_not_depend_on_the_others(name: str, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        assert rows_that_change(ROW_BY_ROW[name], values(*shape, dtype)) == 0


def test_exp_of_every_bfloat16_does_not_depend_on_its_place() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    finite = every[every.isfinite()]
    alone = torch.cat([one.exp() for one in finite.split(1)])
    together = finite.exp()
    assert torch.equal(bits(alone), bits(together))
    assert torch.equal(
        bits(torch.cat([one.exp() for one in finite.float().split(1)])), bits(finite.float().exp())
    )


def test_the_procedure_finds_what_depends_on_the_batch() -> None:
    elements = values(*SHAPES[0], torch.bfloat16)
    assert rows_that_change(lambda x: x.abs().rsqrt(), elements) > 0
    assert rows_that_change(torch.nn.functional.silu, elements.float()) > 0
    weight = values(300, 1537, torch.float32)
    linear = rows_that_change(lambda x: x @ weight.t(), values(64, 1537, torch.float32))
    total = rows_that_change(
        lambda x: x.sum(0, keepdim=True).expand_as(x), values(64, 37, torch.float32)
    )
    assert linear > 0 and total > 0


def test_an_operator_is_in_one_table_and_has_torchs_spelling() -> None:
    tables = (CORRECTLY_ROUNDED, MOVES, CHOICES, frozenset(TESTED))
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert WITH_FACTOR <= CORRECTLY_ROUNDED and MAY_ACCUMULATE <= MOVES
    for name in names:
        namespace, function = name.split("::")
        if namespace == "aten":
            packet = torch.ops.aten
            assert hasattr(packet, function) or hasattr(packet, f"{function}_"), name


def test_what_is_called_correctly_rounded_is_element_by_element_for_torch_too() -> None:
    for name in CORRECTLY_ROUNDED:
        packet = getattr(torch.ops.aten, name.split("::")[1])
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
        assert any(torch.Tag.pointwise in overload.tags for overload in overloads), name


def test_every_tested_operator_has_a_test() -> None:
    from .test_vllm_operators import VLLM_OPERATORS

    assert set(TESTED) <= {*ELEMENT_BY_ELEMENT, *ROW_BY_ROW, *VLLM_OPERATORS}
