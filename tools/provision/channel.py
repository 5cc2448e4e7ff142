# SPDX-License-Identifier: Apache-2.0
"""The first half of ``scripts/channel``; runs on the machine's own Python 3.11."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence

from provision.bootstrap import BootstrapError, tools_python
from provision.preflight import (
    COLD_BYTES,
    check_folder,
    check_machine,
    check_python,
    failures,
    one_line,
)
from provision.progress import Progress
from provision.quickstart import ERROR, INTERRUPTED, TREE, Parser
from provision.state import VARIABLE, exclusive, state_folder
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
    try:
        state = state_folder(TREE, given.state, dict(os.environ))
    except ValueError as error:
        parser.error(str(error))
    environment = dict(os.environ)
    warm = state.standin.exists()
    missing = list(
        failures(
            [
                lambda: check_machine(platform.system(), platform.machine()),
                lambda: check_python(sys.version_info[:2], ("venv", "ensurepip")),
                lambda: find_compiler("cxx", environment),
                lambda: find_cmake(environment),
                # Wheels and channel: a third of what quickstart takes.
                lambda: check_folder(state.root, 0 if warm else COLD_BYTES // 3),
            ]
        )
    )
    if missing:
        for line in missing:
            print(f"channel: {line}", file=sys.stderr)
        return ERROR
    progress = Progress()
    try:
        with exclusive(state.lock, lambda: progress("start", "waiting for another run here")):
            lock = TREE / "locks" / "channel-tools.txt"
            python = tools_python(state.tools, lock, lambda text: progress("tools", text))
    except (BootstrapError, OSError) as error:
        print(f"channel: {one_line(error)}", file=sys.stderr)
        return ERROR
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    command = [str(python), "-P", "-B", "-m", "provision.channel_stages", str(state.root)]
    os.execve(command[0], [*command, "json" if given.json else "text"], environment)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("channel: interrupted; run it again to continue", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
