# SPDX-License-Identifier: Apache-2.0
"""Covered lines by file and in all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Lines:
    covered: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.total if self.total else 100.0


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    language: str
    files: Mapping[str, Lines]
    """By path from the tree's root."""

    @property
    def whole(self) -> Lines:
        lines = self.files.values()
        return Lines(sum(one.covered for one in lines), sum(one.total for one in lines))

    def text(self, bar: float) -> str:
        """A line for the whole, and one for each file below the bar, the worst first."""
        whole = self.whole
        rows = [f"{self.language}: {whole.percent:.1f} % of {whole.total} lines"]
        below = [(lines.percent, path, lines) for path, lines in self.files.items()]
        rows += [
            f"  {percent:5.1f} %  {path} ({lines.total - lines.covered} of {lines.total} not run)"
            for percent, path, lines in sorted(below, key=lambda row: row[:2])
            if percent < bar
        ]
        return "\n".join(rows)

    def as_json(self) -> dict[str, Any]:
        whole = self.whole
        return {
            "covered": whole.covered,
            "lines": whole.total,
            "percent": round(whole.percent, 2),
            "files": {path: [one.covered, one.total] for path, one in sorted(self.files.items())},
        }


def of_coverage_json(report: Mapping[str, Any]) -> Summary:
    """From the report that `coverage json` writes."""
    return Summary(
        "Python",
        {
            path: Lines(entry["summary"]["covered_lines"], entry["summary"]["num_statements"])
            for path, entry in report["files"].items()
        },
    )


def of_gcovr_json(report: Mapping[str, Any]) -> Summary:
    """From the report that `gcovr --json-summary` writes: a line of a kernel is one line, run where
    any of the instruction sets runs it."""
    return Summary(
        "C++",
        {
            entry["filename"]: Lines(entry["line_covered"], entry["line_total"])
            for entry in report["files"]
        },
    )
