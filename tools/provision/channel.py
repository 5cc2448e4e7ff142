# SPDX-License-Identifier: Apache-2.0
"""The first half of ``scripts/channel``: its options, and what the machine must have."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence

from provision.first_half import ERROR, INTERRUPTED, TREE, Parser, go_on, refused
from provision.preflight import (
    COLD_BYTES,
    check_folder,
    check_machine,
    check_python,
    failures,
)
from provision.progress import Progress
from provision.state import VARIABLE, state_folder
from provision.toolchain import find_cmake, find_compiler

_DESCRIPTION = """\
Make a local conda channel from the wheels that locks/ pins, with the dependencies their metadata
states, for machines where no conda channel can be reached. Its packages carry "standin" in their
build strings, use this machine's Python, compiler and CMake, and are for this machine only: nothing
is ever uploaded. What is unchanged since the last run is reused; run it again after a kill."""
_EPILOG = f"""\
environment: PYTHON (the Python 3.11 to use and package), {VARIABLE} (default of --state), CC, CXX

example:
  ./scripts/channel --json && ls build/channel/standin/noarch"""


def main(arguments: Sequence[str]) -> int:
    """Check, bootstrap, go on in the tools' environment; returns only where that fails."""
    parser = Parser(
        prog="channel",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--state", metavar="DIR", help="folder for everything made on the way (default: build/)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the channel's path and packages as JSON"
    )
    given = parser.parse_args(arguments)
    environment = dict(os.environ)
    try:
        state = state_folder(TREE, given.state, environment)
    except ValueError as error:
        parser.error(str(error))
    warm = state.standin.exists()
    missing = failures(
        [
            lambda: check_machine(platform.system(), platform.machine()),
            lambda: check_python(sys.version_info[:2], ("venv", "ensurepip")),
            lambda: find_compiler("cxx", environment),
            lambda: find_cmake(environment),
            # Wheels and channel: a third of what quickstart takes.
            lambda: check_folder(state.root, 0 if warm else COLD_BYTES // 3),
        ]
    )
    if refused("channel", missing):
        return ERROR
    form = "json" if given.json else "text"
    return go_on("channel", state, Progress(), str(state.root), form)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("channel: interrupted; run it again to continue", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
