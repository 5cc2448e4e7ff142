# SPDX-License-Identifier: Apache-2.0
"""Packages that stand for the machine's own compiler, CMake and C library.

``${{ compiler("cxx") }}`` and ``${{ stdlib("c") }}`` of a recipe ask the channel for
``gxx_linux-64`` and ``sysroot_linux-64``. In the stand-in channel these hold no compiler: they
export CC and CXX, as conda-forge's do when activated.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from provision.conda_package import Entry

MINIMUM_CMAKE = (3, 25)

_ACTIVATE = """# SPDX-License-Identifier: Apache-2.0
if [ -n "${{{name}+x}}" ]; then export STANDIN_BACKUP_{name}="${{{name}}}"; fi
export {name}={path}
"""
_DEACTIVATE = """# SPDX-License-Identifier: Apache-2.0
unset {name}
if [ -n "${{STANDIN_BACKUP_{name}+x}}" ]; then
    export {name}="${{STANDIN_BACKUP_{name}}}"
    unset STANDIN_BACKUP_{name}
fi
"""
_WRAPPER = """#!/bin/sh
exec {path} "$@"
"""


class ToolchainError(RuntimeError):
    """A tool of the machine is missing or too old; one line says what to install."""


@dataclass(frozen=True)
class Tool:
    """One tool of the machine: where it is and its version."""

    path: Path
    version: str


def quoted(path: Path) -> str:
    """The path as one word of a POSIX shell."""
    return "'" + str(path).replace("'", "'\\''") + "'"


def _ask(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False)
    except (OSError, UnicodeDecodeError) as error:
        raise ToolchainError(f"{path} does not run ({error}); put a working one on PATH") from None


def _version_of(path: Path, pattern: str) -> str:
    done = _ask(path, "--version")
    match = re.search(pattern, done.stdout)
    if done.returncode or match is None:
        raise ToolchainError(f"{path} --version says nothing usable; is it installed rightly?")
    return match[1]


def find_compiler(language: str, environment: dict[str, str]) -> Tool:
    """The C ("c") or C++ ("cxx") compiler: $CC or $CXX, else the usual names on PATH."""
    variable, names, label = {
        "c": ("CC", ("gcc", "cc", "clang"), "C"),
        "cxx": ("CXX", ("g++", "c++", "clang++"), "C++"),
    }[language]
    wanted = environment.get(variable)
    if wanted is not None and len(wanted.split()) > 1 and not Path(wanted).exists():
        raise ToolchainError(f"{variable}={wanted!r}: give the compiler alone, without arguments")
    for name in (wanted,) if wanted else names:
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            path = Path(found)
            done = _ask(path, "-dumpfullversion", "-dumpversion")
            version = done.stdout.strip()
            if done.returncode or not re.fullmatch(r"[0-9]+(\.[0-9]+)*", version):
                raise ToolchainError(f"{path} does not run; set {variable} to a working compiler")
            return Tool(path, version)
    looked = wanted or ", ".join(names)
    raise ToolchainError(
        f"no {label} compiler found (looked for {looked}); install g++ (Debian: apt install g++) "
        f"or set {variable}"
    )


def find_cmake(environment: dict[str, str]) -> Tool:
    """CMake on PATH, at least 3.25."""
    minimum = ".".join(map(str, MINIMUM_CMAKE))
    found = shutil.which("cmake", path=environment.get("PATH"))
    if found is None:
        raise ToolchainError(
            f"CMake >= {minimum} not found; install it (Debian: apt install cmake)"
        )
    version = _version_of(Path(found), r"cmake version ([0-9]+(?:\.[0-9]+)+)")
    if tuple(map(int, version.split(".")[:2])) < MINIMUM_CMAKE:
        raise ToolchainError(f"CMake >= {minimum} is needed, {found} is {version}; install a newer")
    return Tool(Path(found), version)


def compiler_entries(package: str, variable: str, tool: Tool) -> Iterator[Entry]:
    """Activation scripts that export ``variable`` and restore what was there."""
    values = {"name": variable, "path": quoted(tool.path)}
    for event, text in (("activate", _ACTIVATE), ("deactivate", _DEACTIVATE)):
        yield Entry(f"etc/conda/{event}.d/{event}-{package}.sh", text.format(**values).encode())


def wrapper_entries(name: str, tool: Tool) -> Iterator[Entry]:
    """``bin/<name>`` that runs the machine's tool, wherever the prefix lies."""
    text = _WRAPPER.format(path=quoted(tool.path))
    yield Entry(f"bin/{name}", text.encode(), executable=True)
