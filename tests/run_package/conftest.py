# SPDX-License-Identifier: Apache-2.0
"""Small packages made on the spot, and the means to run them as a person does."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import random
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from csrc.run_package.build import HEADER, LIBRARY, MACHINES, Built, build
from vllm_ascend import soc

ROOT = Path(__file__).resolve().parents[2]
ARCH = platform.machine()


def elf(arch: str, size: int, seed: int) -> bytes:
    """Bytes that begin as a shared library for `arch` does; the packager reads no further."""
    machine = {name: number for number, name in MACHINES.items()}[arch]
    start = b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little")
    return start + machine.to_bytes(2, "little") + random.Random(seed).randbytes(size)


def stage(tree: Path, *, arch: str = ARCH, size: int = 50_000, seed: int = 1) -> Path:
    """A staged tree with a library and the real header."""
    library, header = tree / LIBRARY, tree / HEADER
    library.parent.mkdir(parents=True)
    header.parent.mkdir(parents=True)
    library.write_bytes(elf(arch, size, seed))
    header.write_bytes((ROOT / "csrc" / HEADER).read_bytes())
    return tree


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that differ in one thing each."""

    first: Built
    second: Built
    """Another library and version, the same SoC."""
    other_soc: Built
    other_arch: Built


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    base = tmp_path_factory.mktemp("packages")
    base.chmod(0o755)
    base.parent.chmod(0o755)

    def make(name: str, soc_name: str, version: str, arch: str, seed: int) -> Built:
        output = base / name
        output.mkdir(mode=0o755)
        tree = stage(base / f"{name}.tree", arch=arch, seed=seed)
        return build(tree, soc.resolve(soc_name), output, version=version)

    other = "aarch64" if ARCH == "x86_64" else "x86_64"
    return Packages(
        first=make("first", "cpu", "0.1.0", ARCH, 1),
        second=make("second", "cpu", "0.2.0", ARCH, 2),
        other_soc=make("soc", "910b", "0.1.0", ARCH, 3),
        other_arch=make("arch", "cpu", "0.1.0", other, 4),
    )


Run = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment() -> dict[str, str]:
    """This process's environment without what chooses a place to install to."""
    unwanted = {"ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH"}
    return {key: value for key, value in os.environ.items() if key not in unwanted}


def run_package(
    package: Path | str,
    *arguments: str,
    cwd: Path | str = "/",
    env: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    umask: int = 0o022,
) -> subprocess.CompletedProcess[str]:
    """Runs a package, after the command `prefix` if there is one; nothing of it goes on after."""
    command = [*prefix, str(package), *arguments]
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**clean_environment(), **(env or {})},
        umask=umask,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        start_new_session=True,
    ) as process:
        try:
            out, error = process.communicate(timeout=120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def state(directory: Path) -> dict[str, str]:
    """Every path below a directory: a file's sha256, a link's target, or `directory`."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "directory"
    return found


def installed(directory: Path) -> dict[str, str] | None:
    """The files that a user of DIR/vendors/batch_invariant sees, or None if there is nothing."""
    place = directory / "vendors/batch_invariant"
    if not os.path.lexists(place):
        return None
    files = {key: value for key, value in state(place.resolve()).items() if value != "directory"}
    assert files, f"{place} is there and empty"
    return files


def without_flock(folder: Path) -> dict[str, str]:
    """An environment in which `flock` answers as on a file system that has no locks."""
    folder.mkdir()
    (folder / "flock").write_text("#!/bin/sh\nexit 71\n")
    (folder / "flock").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def said(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failed run prints."""
    assert result.returncode != 0, result.stdout
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr
