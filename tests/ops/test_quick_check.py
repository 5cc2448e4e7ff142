# SPDX-License-Identifier: Apache-2.0
"""The guide's quick check, word for word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import guide


@pytest.mark.parametrize("where", ["/", "an empty folder"])
def test_quick_check_passes_from_any_folder(where: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", guide.block("id=quick-check")],
        cwd="/" if where == "/" else tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "batch_invariant_ops.npu_matmul_batch_invariant\n"
