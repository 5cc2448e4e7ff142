# SPDX-License-Identifier: Apache-2.0
"""The report's document and tables, from traces made on the spot."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ascend.batch_invariant.__main__ import main
from vllm_ascend.batch_invariant.report.classify import CLASSES
from vllm_ascend.batch_invariant.report.command import as_text, merge


def traced(*findings: tuple[str, str, int], compiled: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "findings": [
            {
                "operator": operator,
                "class": kind,
                "by": [],
                "reason": "because",
                "calls": calls,
                "phases": {"forward": calls},
            }
            for operator, kind, calls in findings
        ],
        "called": {operator: calls for operator, _, calls in findings},
        "compiled": list(compiled),
        "overrides": [
            {"name": "vllm::linear", "target": "hook", "by": ["npu_linear"], "reason": "blocking"}
        ],
        "operators": {"path": "/opp/lib.so", "version": "0.1.0", "isa": "portable", "abi": 1},
        "versions": {"torch": "2.13.0", "vllm-ascend": None},
        "dtype": "bfloat16",
    }


OURS = ("batch_invariant_ops::npu_linear", "ours", 4)


def test_models_are_merged_by_operator() -> None:
    document = merge({"a": traced(OURS), "b": traced(OURS, ("aten::view", "view", 2))})
    assert document["covered"] is True and document["uncovered"] == []
    first, second = document["operators"]
    assert (first["calls"], first["models"], first["phases"]) == (8, ["a", "b"], {"forward": 8})
    assert second["models"] == ["b"]
    (override,) = document["overrides"]
    assert override["calls"] == 8


def test_an_uncovered_operator_comes_first_and_is_named_at_the_end() -> None:
    document = merge({"a": traced(OURS, ("aten::sum", "uncovered", 1))})
    assert document["covered"] is False and document["uncovered"] == ["aten::sum"]
    assert document["operators"][0]["operator"] == "aten::sum"
    assert "report: uncovered: aten::sum\nreport: NOT covered: 2 operators" in as_text(document)


def test_what_holds_for_a_class_is_said_once() -> None:
    moved = [(f"aten::{name}", "move", 1) for name in ("cat", "copy_", "gather")]
    document = traced(*moved)
    for finding in document["findings"][:2]:
        finding["reason"] = CLASSES["move"]
    lines = as_text(merge({"a": document})).splitlines()
    assert sum(CLASSES["move"] in line for line in lines) == 1
    assert sum("because" in line for line in lines) == 2  # the third's own, and a heading
    assert len([line for line in lines if line]) == len({line for line in lines if line})


def test_an_override_that_does_not_exist_is_3_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["report", "--subject", "without:typo"]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert "'typo'; choose from aten::_log_softmax, " in line


def test_compiled_code_is_uncovered_because_no_trace_sees_it() -> None:
    document = merge({"a": traced(OURS, compiled=("sample (sampler.py)",))})
    assert document["covered"] is False
    assert "compiled, not traced: sample (sampler.py)" in as_text(document)


def test_the_text_names_the_library_and_what_is_missing() -> None:
    text = as_text(merge({"a": traced(OURS)}))
    assert "operator library 0.1.0 (isa portable, abi 1): /opp/lib.so" in text
    assert "vllm-ascend not installed" in text
    assert text.isascii() and "\x1b" not in text


def test_a_directory_without_a_model_is_3(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--model", str(tmp_path)]) == 3
    assert "no config.json" in capsys.readouterr().err
