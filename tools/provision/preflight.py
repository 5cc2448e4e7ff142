# SPDX-License-Identifier: Apache-2.0
"""What the machine must have, checked before anything is made.

Each failure is one line: what is needed, what was found, what to type.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from provision import toolchain
from provision.prefix_stamp import PrefixError, check_replaceable

# Wheels 0.6, stand-in channel 0.5, unpacked packages 2.3, builds 1.5 (GB), and some room.
COLD_BYTES = 6_000_000_000
# A run that reuses all that writes a few models and results.
WARM_BYTES = 500_000_000


class PreflightError(RuntimeError):
    """Something is missing; the message is the one line to show."""


def check_machine(system: str, machine: str) -> None:
    """The stand-in channel's locks are for Linux on x86-64."""
    if (system, machine) != ("Linux", "x86_64"):
        raise PreflightError(
            f"the locked wheels are for Linux on x86_64, this is {system} on {machine}; "
            "use --channel conda-forge, or install as README.md says under 'Install without Conda'"
        )


def check_python(version: tuple[int, int], modules: Iterable[str]) -> None:
    """CPython 3.11 that can make virtual environments (Debian keeps that in a package)."""
    if version != (3, 11):
        found = ".".join(map(str, version))
        raise PreflightError(f"Python 3.11 is needed, this is {found}; set PYTHON to a Python 3.11")
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise PreflightError(
                f"this Python ({sys.executable}) lacks the module {name}; "
                "install it (Debian: apt install python3.11-venv) or set PYTHON to another 3.11"
            )


def check_library(name: str, package: str) -> None:
    """A shared library that a locked wheel loads and does not bring."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        raise PreflightError(
            f"the library {name} is needed, which vLLM loads; install it (Debian: apt install "
            f"{package})"
        ) from error


def existing_parent(folder: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def check_folder(folder: Path, needed: int) -> None:
    """A folder that can be written to, with ``needed`` bytes free."""
    parent = existing_parent(folder)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise PreflightError(f"cannot write to {folder}; choose another folder with --state DIR")
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise PreflightError(
            f"{needed / 1e9:.1f} GB are needed in {folder}, {free / 1e9:.1f} GB are free; "
            "make room or choose another folder with --state DIR"
        )


def check_no_blank(prefix: Path) -> None:
    """vLLM hands libraries of its environment on in LD_PRELOAD, where a blank ends a path."""
    if len(str(prefix).split()) != 1:
        raise PreflightError(
            f"vLLM cannot run from a folder with a blank in its path, {str(prefix)!r}; "
            "choose another with --prefix DIR"
        )


def check_prefix(prefix: Path) -> None:
    """A folder that does not exist yet or was made here, beside which things can be written."""
    check_replaceable(prefix)
    # The new prefix is made beside the old one, and takes its name.
    parent = existing_parent(prefix.parent)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise PreflightError(f"cannot write to {parent}; choose another folder with --prefix DIR")


def failures(checks: Iterable[Callable[[], object]]) -> Iterator[str]:
    """The line of each check that fails."""
    for check in checks:
        try:
            check()
        except (PreflightError, PrefixError, toolchain.ToolchainError, OSError) as error:
            yield str(error)


def check_all(
    state: Path, prefix: Path, environment: dict[str, str], *, standin: bool
) -> list[str]:
    """What is missing for a quickstart from ``state`` to ``prefix``; empty where nothing is."""
    warm = (state / "prefix").exists() and (state / "channel").exists()
    checks: list[Callable[[], object]] = [
        lambda: check_python(sys.version_info[:2], ("venv", "ensurepip")),
        lambda: toolchain.find_compiler("cxx", environment),
        lambda: toolchain.find_cmake(environment),
        lambda: check_folder(state, WARM_BYTES if warm else COLD_BYTES),
        lambda: check_no_blank(prefix),
        lambda: check_prefix(prefix),
    ]
    if standin:
        checks.insert(0, lambda: check_machine(platform.system(), platform.machine()))
        checks.append(lambda: check_library("libnuma.so.1", "libnuma1"))
    return list(failures(checks))


def one_line(error: BaseException) -> str:
    """An expected error as the line to show; a full disk says what to do about it."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        where = error.filename or "the state folder"
        return f"no space left for {where}; make room or choose another folder with --state DIR"
    return str(error)
