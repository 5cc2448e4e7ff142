# SPDX-License-Identifier: Apache-2.0
"""./scripts/coverage: what it makes of the reports, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from line_coverage import __main__ as command
from line_coverage.summary import Lines, Summary, of_coverage_json, of_gcovr_json

HALF = Summary("C++", {"csrc/a.cpp": Lines(95, 100), "csrc/b.h": Lines(0, 90)})


def measures(result: Summary) -> dict[str, Callable[[Path, object, Sequence[str]], Summary]]:
    return {"cpp": lambda work, run, select: result}


def test_the_whole_counts_lines_not_files() -> None:
    assert HALF.whole == Lines(95, 190)
    assert HALF.text(90).splitlines() == [
        "C++: 50.0 % of 190 lines",
        "    0.0 %  csrc/b.h (90 of 90 not run)",
    ]


def test_reports_of_the_two_tools_are_understood() -> None:
    python = of_coverage_json(
        {"files": {"a.py": {"summary": {"covered_lines": 3, "num_statements": 4}}}}
    )
    assert python.files == {"a.py": Lines(3, 4)}
    cpp = of_gcovr_json({"files": [{"filename": "a.cc", "line_covered": 1, "line_total": 2}]})
    assert cpp.files == {"a.cc": Lines(1, 2)}


@pytest.mark.parametrize("bar, code", [("50", 0), ("50.1", 1)])
def test_below_the_bar_is_exit_code_1(
    bar: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "MEASURES", measures(HALF))
    report = tmp_path / "coverage.json"
    assert command.main(["--bar", bar, "--json", str(report)]) == code
    assert "C++: 50.0 % of 190 lines" in capsys.readouterr().out
    assert json.loads(report.read_text())["cpp"]["percent"] == 50.0


def test_a_failed_step_is_one_line_and_no_figure(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(work: Path, run: Callable[..., None], select: Sequence[str]) -> Summary:
        run(sys.executable, "-c", "print('seen'); raise SystemExit(3)")
        return HALF

    monkeypatch.setattr(command, "MEASURES", {"python": fail})
    assert command.main([]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[0] == "seen"
    assert output.err.splitlines()[-1].startswith("coverage: '")
