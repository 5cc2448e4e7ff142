# SPDX-License-Identifier: Apache-2.0
"""The first half of ``scripts/quickstart``: its options, and what the machine must have."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from provision.first_half import ERROR, INTERRUPTED, TREE, Parser, go_on, refused
from provision.preflight import check_all
from provision.progress import Progress
from provision.state import VARIABLE, absolute, state_folder

_DESCRIPTION = """\
From this tree to a conda prefix with batch-invariant vLLM, and the proof that it is one.

Makes the packages that conda-forge would give (where that can't be reached), builds the three
stages from their recipes, installs vllm-ascend into a prefix, runs the quick check, then `check` on
two tiny random models. Run it again after a kill or a change: what is unchanged is reused, and
`check` always runs."""
_EPILOG = f"""\
exit codes: 0 identical; 1 a difference; 2 inconclusive (no control differed); 3 could not be run
environment: PYTHON (the Python 3.11 to use), {VARIABLE} (default of --state), CC, CXX

example:
  ./scripts/quickstart --prefix ~/vllm-ascend --json result.json"""


@dataclass(frozen=True)
class Options:
    """What was asked for; handed to the second half as JSON."""

    state: str
    prefix: str
    json: str | None
    channel: str
    check: list[str]
    started: float


def parse(arguments: Sequence[str], environment: dict[str, str]) -> Options:
    """The command line's options, paths made absolute."""
    parser = Parser(
        prog="quickstart",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prefix", metavar="DIR", help="where to install (default: STATE/prefix)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    parser.add_argument(
        "--channel",
        choices=("auto", "standin", "conda-forge"),
        default="auto",
        help="where third-party packages come from (default: conda-forge if it answers)",
    )
    parser.add_argument(
        "--state", metavar="DIR", help="folder for everything made on the way (default: build/)"
    )
    parser.add_argument(
        "--check",
        metavar="ARGUMENTS",
        default="",
        help="more arguments for check, as one word: --check '--prompts 8 --threads 1'",
    )
    given = parser.parse_args(arguments)
    try:
        state = state_folder(TREE, given.state, environment)
        prefix = absolute(given.prefix) if given.prefix else state.prefix
        result = absolute(given.json) if given.json else None
        check = shlex.split(given.check)
    except ValueError as error:
        parser.error(str(error))
    if result is not None and not result.parent.is_dir():
        parser.exit(ERROR, f"quickstart: --json {given.json}: its folder does not exist\n")
    if result is not None and result.is_dir():
        parser.exit(ERROR, f"quickstart: --json {given.json}: it is a folder; give a file\n")
    return Options(
        state=str(state.root),
        prefix=str(prefix),
        json=None if result is None else str(result),
        channel=given.channel,
        check=check,
        started=time.time(),
    )


def main(arguments: Sequence[str]) -> int:
    """Check, bootstrap, go on in the tools' environment; returns only where that fails."""
    options = parse(arguments, dict(os.environ))
    progress = Progress(options.started)
    state = state_folder(TREE, options.state, {})
    missing = check_all(
        state.root,
        Path(options.prefix),
        dict(os.environ),
        standin=options.channel == "standin",
    )
    if refused("quickstart", missing):
        return ERROR
    progress("start", f"state in {state.root}, prefix {options.prefix}")
    return go_on("quickstart", state, progress, json.dumps(asdict(options)))


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("quickstart: interrupted; run it again to continue", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
