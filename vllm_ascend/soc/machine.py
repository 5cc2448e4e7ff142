# SPDX-License-Identifier: Apache-2.0
"""Which SoC this machine has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from . import soc_table


def default(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> soc_table.Soc:
    """The row to use where no SoC was named.

    No NPU and no CANN: `cpu`. A machine with CANN and no NPU (a login node) decides nothing, and
    neither does one with an NPU as long as its chip is not identified here: both ask for the name.

    Args:
        environ: environment to look for CANN in; the process's own by default.
        root: directory that stands for `/`.

    Raises:
        UndecidedSocError: the name has to be given.
    """
    environ = os.environ if environ is None else environ
    npus = sorted((root / "dev").glob("davinci[0-9]*"))
    ask = f"name the SoC: one of {soc_table.table().accepted()}"
    if npus:
        raise soc_table.UndecidedSocError(f"this machine has an NPU ({npus[0]}); {ask}")
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        if environ.get(variable):
            raise soc_table.UndecidedSocError(
                f"CANN is set up ({variable}) but there is no NPU here; {ask}"
            )
    cann = root / "usr/local/Ascend"
    if cann.is_dir():
        raise soc_table.UndecidedSocError(
            f"CANN is installed ({cann}) but there is no NPU here; {ask}"
        )
    return soc_table.resolve("cpu")
