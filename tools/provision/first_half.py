# SPDX-License-Identifier: Apache-2.0
"""What the first halves of ``scripts/quickstart``, ``channel`` and ``bundle`` share.

A first half runs on the machine's own Python 3.11 with the standard library alone: it reads the
options, says what the machine lacks, makes the tools' environment, and goes on in that with the
second half.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from provision.bootstrap import BootstrapError, tools_python
from provision.preflight import one_line
from provision.progress import Progress
from provision.state import State, exclusive

TREE = Path(__file__).resolve().parents[2]
# Could not be run; 1 and 2 are check's own "different" and "inconclusive".
ERROR = 3
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose own errors don't end with one of check's exit codes."""

    def error(self, message: str) -> NoReturn:
        """One line, exit code 3."""
        self.exit(ERROR, f"{self.prog}: {message}; --help explains\n")


def refused(program: str, missing: Iterable[str]) -> bool:
    """Whether the machine lacks something; each line of ``missing`` is shown."""
    lines = list(missing)
    for line in lines:
        print(f"{program}: {line}", file=sys.stderr)
    return bool(lines)


def go_on(
    program: str,
    state: State,
    progress: Progress,
    *arguments: str,
    locks: Sequence[str] = ("channel-tools",),
) -> int:
    """Make the tools' environment and become ``provision.<program>_stages`` in it.

    Each choice of ``locks`` has an environment of its own. Returns only where that fails, after one
    line: the exit code.
    """
    try:
        with exclusive(state.lock, lambda: progress("start", "waiting for another run here")):
            folder = state.tools.with_name("-".join([state.tools.name, *locks[1:]]))
            files = [TREE / "locks" / f"{name}.txt" for name in locks]
            python = tools_python(folder, files, lambda text: progress("tools", text))
    except (BootstrapError, OSError) as error:
        print(f"{program}: {one_line(error)}", file=sys.stderr)
        return ERROR
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(TREE / "tools")}
    command = [str(python), "-P", "-B", "-m", f"provision.{program}_stages", *arguments]
    os.execve(command[0], command, environment)
