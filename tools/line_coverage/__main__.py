# SPDX-License-Identifier: Apache-2.0
"""Runs the tests and says which part of the product's lines they run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from . import cpp, python

ROOT = Path(__file__).resolve().parents[2]
MEASURES = {"python": python.measure, "cpp": cpp.measure}

EPILOG = """\
Python: all tests, in every process they start. C++: the C++ tests with each instruction set of this
machine, and tests/ops, with stages 1 and 2 built to count their lines. Files below the bar are
listed. Exit code: 0 both reach the bar, 1 one does not, 2 a test or a build failed.

BI_BUILD: where to work (default: build/ in the tree), as for ./scripts/test.
Example: ./scripts/coverage --only cpp --json coverage.json
"""


class Failed(Exception):
    """A step did not succeed; the message is one line."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    """Runs a step; its output goes to standard error, so that the summary stands alone."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, stdout=sys.stderr)
    if done.returncode:
        raise Failed(f"'{' '.join(map(str, command[:4]))} …' failed; see above")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="coverage",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=sorted(MEASURES), help="one language (default: both)")
    parser.add_argument("--slow", action="store_true", help="also the tests that take minutes")
    parser.add_argument("--bar", type=float, default=90.0, metavar="PERCENT", help="default: 90")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    select = [] if options.slow else ["-m", "not slow"]
    work = Path(os.environ.get("BI_BUILD") or ROOT / "build").resolve() / "coverage"
    names = [options.only] if options.only else sorted(MEASURES)
    try:
        summaries = {name: MEASURES[name](work / name, run, select) for name in names}
    except Failed as error:
        print(f"coverage: {error}", file=sys.stderr)
        return 2
    for summary in summaries.values():
        print(summary.text(options.bar))
    if options.json:
        figures = {name: summary.as_json() for name, summary in summaries.items()}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(any(summary.whole.percent < options.bar for summary in summaries.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
