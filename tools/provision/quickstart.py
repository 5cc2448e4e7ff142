# SPDX-License-Identifier: Apache-2.0
"""The first half of ``scripts/quickstart``: its options, and what the machine must have.

Runs on the machine's own Python 3.11 with the standard library alone, makes the tools'
environment, and goes on in it with ``provision.quickstart_stages``.
"""

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
from typing import NoReturn

from provision.bootstrap import BootstrapError, tools_python
from provision.preflight import check_all, one_line
from provision.progress import Progress
from provision.state import VARIABLE, absolute, exclusive, state_folder

TREE = Path(__file__).resolve().parents[2]
# Could not be run; 1 and 2 are check's own "different" and "inconclusive".
ERROR = 3
INTERRUPTED = 130

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


class Parser(argparse.ArgumentParser):
    """An argument parser whose own errors don't end with one of check's exit codes."""

    def error(self, message: str) -> NoReturn:
        """One line, exit code 3."""
        self.exit(ERROR, f"{self.prog}: {message}; --help explains\n")


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
    if missing:
        for line in missing:
            print(f"quickstart: {line}", file=sys.stderr)
        return ERROR
    progress("start", f"state in {state.root}, prefix {options.prefix}")
    try:
        with exclusive(state.lock, lambda: progress("start", "waiting for another run here")):
            lock = TREE / "locks" / "channel-tools.txt"
            python = tools_python(state.tools, lock, lambda text: progress("tools", text))
    except (BootstrapError, OSError) as error:
        print(f"quickstart: {one_line(error)}", file=sys.stderr)
        return ERROR
    environment = dict(os.environ)
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    environment["PYTHONPATH"] = str(TREE / "tools")
    command = [str(python), "-P", "-B", "-m", "provision.quickstart_stages"]
    os.execve(command[0], [*command, json.dumps(asdict(options))], environment)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("quickstart: interrupted; run it again to continue", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
