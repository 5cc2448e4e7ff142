# SPDX-License-Identifier: Apache-2.0
"""The two ways to run a build differ in each respect, and see each attempt to reach a network."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .builds import SCRIPT
from .circumstances import Circumstances

Both = tuple[Circumstances, Circumstances]

WHO_AND_WHERE = """
import os, sys, time
mask = os.umask(0)
print(os.getuid(), os.getgid(), mask, time.gmtime().tm_year, time.tzname[0], os.getcwd(),
      len(os.sched_getaffinity(0)), os.environ["HOME"], os.environ.get("LC_ALL"), sep="\\n")
"""


def test_circumstances_differ_in_each_respect(both: Both) -> None:
    seen = [where.made([sys.executable, "-c", WHO_AND_WHERE]).splitlines() for where in both]
    assert len(seen[0]) == len(seen[1]) == 9
    same = [pair for pair in zip(*seen, strict=True) if pair[0] == pair[1]]
    assert same == []
    times, modes = zip(
        *((path.st_mtime, path.st_mode) for path in ((w.tree() / SCRIPT).stat() for w in both)),
        strict=True,
    )
    assert times[0] != times[1] and modes[0] != modes[1]


CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 80), timeout=5)
except OSError:
    pass
"""


# Addresses that documentation has to itself, a name that is none, and the machine's own.
@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "mirror.invalid", "127.0.0.1"])
def test_a_connection_is_noticed_even_if_the_build_goes_on_without(
    both: Both, address: str
) -> None:
    for where in both:
        done = where.run([sys.executable, "-c", CONNECT, address])
        assert done.returncode == 0, done.stdout
        assert sum(where.sent().values()) > 0


def test_a_compiler_that_connects_is_noticed(own: Circumstances, tmp_path: Path) -> None:
    """In the script as a person runs it, up to the compiler's first call."""
    for name, line in (
        ("silent", ":"),
        ("talkative", f"'{sys.executable}' -c '{CONNECT}' 192.0.2.1"),
    ):
        compiler = tmp_path / name
        compiler.write_text(f"#!/bin/sh\n{line}\nexit 1\n")
        compiler.chmod(0o755)
        command: list[str | Path] = [
            "bash",
            own.tree() / SCRIPT,
            "cpu",
            "--run-package-only",
            "--output",
            tmp_path,
        ]
        done = own.run(command, PYTHON=sys.executable, CXX=str(compiler))
        assert done.returncode == 1 and "stage 1 configure failed" in done.stdout, done.stdout
        assert (sum(own.sent().values()) > 0) is (name == "talkative")
