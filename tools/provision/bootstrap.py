# SPDX-License-Identifier: Apache-2.0
"""Make the virtual environment the tools run in, from lock files.

Runs on the machine's Python 3.11 with nothing installed: the standard library alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


class BootstrapError(RuntimeError):
    """The environment could not be made; one line says why."""


def _identity(locks: Sequence[Path]) -> str:
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks))
    digest.update(f"{sys.version}\0{os.path.realpath(sys.executable)}".encode())
    return digest.hexdigest()


def tools_python(folder: Path, locks: Sequence[Path], report: Callable[[str], None]) -> Path:
    """The Python of the tools' environment in ``folder``, made if it isn't there or is stale.

    It appears under its name once it is complete. Raises BootstrapError with pip's reason.
    """
    python = folder / "bin" / "python"
    stamp = folder / "stamp"
    identity = _identity(locks)
    if python.exists() and stamp.is_file() and stamp.read_text() == identity:
        report("environment reused")
        return python
    report("making their environment")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(partial)])
    _run(
        [
            *(str(partial / "bin" / "python"), "-m", "pip", "install", "--quiet"),
            *("--disable-pip-version-check", "--no-deps", "--require-hashes"),
            *("--only-binary=:all:", *(f"--requirement={lock}" for lock in locks)),
        ]
    )
    (partial / "stamp").write_text(identity)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        marked = [line for line in lines if line.startswith("ERROR")]
        reason = (marked or lines or ["no message"])[0]
        raise BootstrapError(
            f"{Path(command[0]).name} {' '.join(command[1:4])} failed: {reason} "
            "(a package index that pip reaches is needed)"
        )
