# SPDX-License-Identifier: Apache-2.0
"""Each call of an operator is judged by what it does, not by what it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import torch

from vllm_ascend.batch_invariant.report.classify import (
    CHOICE,
    CONSTANT,
    CONTAINER,
    EXACT,
    INTEGERS,
    MOVE,
    OURS,
    OVERRIDDEN,
    RANDOM,
    TESTED_CLASS,
    UNCOVERED,
    VIEW,
    judge,
    made_of_calls,
)
from vllm_ascend.batch_invariant.report.trace import OperatorTrace

X = torch.arange(12, dtype=torch.float32).view(3, 4)


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """`report_test::plain`, which may be overridden, and operators in our and vLLM's namespaces."""
    with (
        torch.library._scoped_library("batch_invariant_ops", "FRAGMENT") as ours,
        torch.library._scoped_library("vllm", "FRAGMENT") as vllm,
        torch.library._scoped_library("report_test", "DEF") as test,
    ):
        ours.define("report_test_op(Tensor x) -> Tensor")
        ours.impl("report_test_op", lambda x: x @ x.t(), "CPU")
        vllm.define("report_test_layer(Tensor x) -> Tensor")
        vllm.impl(
            "report_test_layer",
            lambda x: torch.ops.batch_invariant_ops.report_test_op(x) + x.sum(),
            "CPU",
        )
        test.define("plain(Tensor x) -> Tensor")

        def plain(x: torch.Tensor) -> torch.Tensor:
            # As an override does: what ours cannot compute goes to the stock kernel.
            if x.dtype == torch.float64:
                return x.numpy().sum() * torch.ones_like(x)
            result: torch.Tensor = torch.ops.batch_invariant_ops.report_test_op(x)
            return result

        test.impl("plain", plain, "CPU")
        yield test


def judged(
    function: Callable[[], object], overrides: Mapping[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """Operator → class of everything that `function` calls."""
    overrides = overrides or {}
    found: dict[str, str] = {}

    def consume(phase: str, call: object) -> None:
        for finding in judge(call, overrides):  # type: ignore[arg-type]
            found[finding.operator] = finding.kind

    with (
        torch.inference_mode(),
        OperatorTrace("CPU", lambda name: made_of_calls(name, overrides), consume),
    ):
        function()
    return found


@pytest.mark.parametrize(
    ("function", "operator", "kind"),
    [
        (lambda: X.sum(0), "aten::sum.dim_IntList", UNCOVERED),
        (lambda: X.long().sum(0), "aten::sum.dim_IntList", INTEGERS),
        (lambda: X @ X.t(), "aten::mm", UNCOVERED),
        (lambda: torch.nn.functional.silu(X), "aten::silu", UNCOVERED),
        (lambda: X + X, "aten::add.Tensor", EXACT),
        (lambda: X + 1, "aten::add.Tensor", EXACT),
        (lambda: torch.add(X, X, alpha=3), "aten::add.Tensor", UNCOVERED),
        (lambda: X.clone().mul_(2), "aten::mul_.Tensor", EXACT),
        (lambda: X.exp(), "aten::exp", TESTED_CLASS),
        (lambda: X.sin(), "aten::sin", UNCOVERED),
        (lambda: X.view(4, 3), "aten::view", VIEW),
        (lambda: X.topk(2), "aten::topk", CHOICE),
        (lambda: torch.cat((X, X)), "aten::cat", MOVE),
        (lambda: X.to(torch.bfloat16), "aten::_to_copy", MOVE),
        (lambda: torch.zeros(3), "aten::zeros", CONSTANT),
        (lambda: X.clone().index_put_((torch.tensor([1]),), X[0]), "aten::index_put_", MOVE),
        (
            lambda: X.clone().index_put_((torch.tensor([1]),), X[0], accumulate=True),
            "aten::index_put_",
            UNCOVERED,
        ),
        (lambda: torch.empty(3).exponential_(), "aten::exponential_", RANDOM),
    ],
)
def test_a_call_is_judged_by_its_operands(
    function: Callable[[], object], operator: str, kind: str
) -> None:
    assert judged(function)[operator] == kind


def test_a_composite_operator_is_judged_by_what_it_calls() -> None:
    found = judged(lambda: X.softmax(-1, dtype=torch.float32))
    assert found["aten::softmax.int"] == CONTAINER
    assert found["aten::_softmax"] == UNCOVERED


def test_our_operators_are_ours_whatever_they_call(library: torch.library.Library) -> None:
    found = judged(lambda: torch.ops.batch_invariant_ops.report_test_op(X))
    assert found == {"batch_invariant_ops::report_test_op": OURS}


def test_a_layer_of_vllm_is_looked_into(library: torch.library.Library) -> None:
    found = judged(lambda: torch.ops.vllm.report_test_layer(X))
    assert found["vllm::report_test_layer"] == CONTAINER
    assert found["batch_invariant_ops::report_test_op"] == OURS
    assert found["aten::sum"] == UNCOVERED


def test_an_override_counts_where_it_calls_what_it_promises(
    library: torch.library.Library,
) -> None:
    overrides = {"report_test::plain": ("report_test_op",)}
    found = judged(lambda: torch.ops.report_test.plain(X), overrides)
    assert found["report_test::plain"] == OVERRIDDEN
    assert judged(lambda: torch.ops.report_test.plain(X)) == {"report_test::plain": UNCOVERED}


def test_an_override_that_falls_back_to_stock_is_uncovered(
    library: torch.library.Library,
) -> None:
    overrides = {"report_test::plain": ("report_test_op",)}
    found = judged(lambda: torch.ops.report_test.plain(X.double()), overrides)
    assert found["report_test::plain"] == UNCOVERED


def test_an_extension_that_computes_by_itself_is_uncovered() -> None:
    with torch.library._scoped_library("report_extension", "DEF") as extension:
        extension.define("opaque(Tensor x) -> Tensor")
        extension.impl("opaque", lambda x: x.clone(), "CompositeImplicitAutograd")
        found = judged(lambda: torch.ops.report_extension.opaque(X))
    assert found["report_extension::opaque"] == UNCOVERED
