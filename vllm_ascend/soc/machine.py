# SPDX-License-Identifier: Apache-2.0
"""Which SoC this machine has: `npu-smi` is asked, CANN and the device files are looked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import cann, npu_smi, soc_table

PLACES = ("usr/local/bin", "usr/local/sbin", "usr/local/Ascend/driver/tools")
"""Where the driver's installer puts npu-smi, beside what PATH names."""

PATIENCE = 300
"""Seconds that npu-smi may take. A node with sixteen chips takes many; a hung driver never ends."""


def devices(root: Path = Path("/")) -> list[Path]:
    """The NPUs' device files."""
    return sorted((root / "dev").glob("davinci[0-9]*"))


def find_npu_smi(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Path:
    """The executable `npu-smi`: on PATH, or where the driver's installer puts it.

    Raises:
        NpuSmiError: there is none.
    """
    environ = os.environ if environ is None else environ
    path = os.pathsep.join([environ.get("PATH", ""), *(str(root / place) for place in PLACES)])
    found = shutil.which("npu-smi", path=path)
    if found is None:
        raise npu_smi.NpuSmiError(
            "npu-smi is neither on PATH nor where the driver's installer puts it: install the NPU's"
            " driver, or give the output of npu-smi info of the machine that is meant"
        )
    return Path(found)


def ask(executable: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> str:
    """What `npu-smi` prints, both streams, whatever its exit status.

    Raises:
        NpuSmiError: it cannot be run, or does not end.
    """
    environ = os.environ if environ is None else environ
    command = [str(executable), *arguments]
    try:
        done = subprocess.run(
            command,
            env={**environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    except OSError as error:
        raise npu_smi.NpuSmiError(f"{executable} does not run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise npu_smi.DriverFaultError(
            f"{' '.join(command)} did not end within {PATIENCE} s: the NPU's driver hangs"
        ) from error
    return done.stdout.decode("utf-8", "replace")


def identify(
    environ: Mapping[str, str] | None = None, root: Path = Path("/")
) -> npu_smi.Identified:
    """The SoC of this machine's NPUs. Where the table does not decide, a board is asked for too.

    Raises:
        SocError: none is identified; see `npu_smi.identify`.
    """
    executable = find_npu_smi(environ, root)
    table = soc_table.table()
    listing = ask(executable, "info", environ=environ)
    try:
        return npu_smi.identify(listing, table)
    except npu_smi.UndecidedChipError as error:
        board = ask(executable, *npu_smi.board_question(error.chip), environ=environ)
        return npu_smi.identify(f"{listing}\n{board}", table)


def default(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> soc_table.Soc:
    """The row to use where no SoC was named.

    The machine's NPU. No NPU and no CANN: `cpu`. A machine with CANN and no NPU (a login node)
    decides nothing and asks for the name.

    Args:
        environ: environment to look for CANN and npu-smi in; the process's own by default.
        root: directory that stands for `/`.

    Raises:
        UndecidedSocError: the name has to be given.
        UnsupportedSocError, UnknownSocError: the machine's chip is known, and there are no
            operators for it.
    """
    environ = os.environ if environ is None else environ
    ask_for_it = f"name the SoC: one of {soc_table.table().accepted()}"
    npus = devices(root)
    if npus:
        try:
            return identify(environ, root).soc
        except npu_smi.NpuSmiError as error:
            raise soc_table.UndecidedSocError(
                f"this machine has an NPU ({npus[0]}) that was not identified: {error}; or"
                f" {ask_for_it}"
            ) from error
    sign = cann.sign(environ, root)
    if sign is not None:
        raise soc_table.UndecidedSocError(f"{sign} but there is no NPU here; {ask_for_it}")
    return soc_table.resolve("cpu")
