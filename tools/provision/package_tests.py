# SPDX-License-Identifier: Apache-2.0
"""Run the tests that packages carry, in the prefix they are installed in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rattler_build import CommandsTest, Package, PackageContentsTest


class PackageTestError(RuntimeError):
    """A package's test failed; the message names it and ends with what it printed."""


@dataclass(frozen=True)
class Command:
    """One script test: its place among the package's tests, and its lines."""

    package: str
    index: int
    lines: tuple[str, ...]

    def script(self, prefix: Path) -> str:
        """What bash runs: the lines, in the folder the test's files are installed in."""
        files = prefix / "etc" / "conda" / "test-files" / self.package / str(self.index)
        start = [f"cd -- '{str(files).replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'"]
        return "\n".join([*(start if files.is_dir() else []), *self.lines])


def lines_of(script: Any) -> tuple[str, ...]:
    """The lines of a rendered test script, whichever way the package states them."""
    if isinstance(script, str):
        return (script,)
    if isinstance(script, Mapping):
        return lines_of(script.get("content") or script.get("content_or_path") or ())
    return tuple(map(str, script))


def commands_of(package: Package) -> Iterable[Command]:
    """The script tests of a package."""
    for test in package.tests:
        if isinstance(test, CommandsTest):
            yield Command(package.name, test.index, lines_of(test.script))


def missing_files(package: Package) -> list[str]:
    """Files that the package's own tests ask for and that it doesn't hold."""
    held = set(package.files)
    wanted = [
        name
        for test in package.tests
        if isinstance(test, PackageContentsTest)
        for name in test.files.exists
    ]
    return [name for name in wanted if name not in held]


def run(archive: Path, prefix: Path, environment: Mapping[str, str]) -> int:
    """Run a package's tests in ``prefix``, activated in ``environment``; how many there were."""
    package = Package.from_file(archive)
    missing = missing_files(package)
    if missing:
        raise PackageTestError(f"{package.name} lacks {', '.join(missing)}")
    commands = list(commands_of(package))
    for command in commands:
        if not command.lines:
            raise PackageTestError(f"{package.name}: test {command.index} has no script")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.script(prefix)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-20:])
            raise PackageTestError(
                f"{package.name}'s own test fails in {prefix} with exit code {done.returncode}:\n"
                f"{tail}"
            )
    return len(commands)
