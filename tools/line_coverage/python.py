# SPDX-License-Identifier: Apache-2.0
"""The tests under coverage.py, in every process they start (`tool.coverage` in pyproject.toml)."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .summary import Summary, of_coverage_json

Run = Callable[..., None]


def measure(work: Path, run: Run, select: Sequence[str]) -> Summary:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    data = {"COVERAGE_FILE": str(work / "data")}
    coverage = (sys.executable, "-m", "coverage")
    run(*coverage, "run", "-m", "pytest", "-q", *select, **data)
    run(*coverage, "combine", "--quiet", **data)
    report = work / "coverage.json"
    run(*coverage, "json", "--quiet", "-o", report, **data)
    return of_coverage_json(json.loads(report.read_text()))
