# SPDX-License-Identifier: Apache-2.0
"""What the scripts have in common: a Python is one, and an answer that is lost is no success."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ascend.standard_output import written

ROOT = Path(__file__).resolve().parents[1]
NEED_PYTHON = {
    "scripts/bundle": ["cpu"],
    "scripts/channel": [],
    "scripts/doctor": [],
    "scripts/images": [],
    "scripts/quickstart": [],
    "scripts/spack-externals": ["/usr"],
    "scripts/test": [],
    "csrc/build_batch_invariant_ops.sh": ["cpu"],
}


@pytest.mark.parametrize("script", NEED_PYTHON)
@pytest.mark.parametrize("program", ["/bin/true", "/bin/echo", "/no/such/python"])
def test_what_is_no_python_is_refused(script: str, program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / script), *NEED_PYTHON[script]],
        env={**os.environ, "PYTHON": program, "BI_BUILD": str(tmp_path / "build")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert program in done.stderr and "Python" in done.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "code"),
    [
        ("vllm_ascend.soc", ["list"], 1),
        ("vllm_ascend.batch_invariant", ["make-model", "qwen3-moe", "model"], 3),
        ("vllm_ascend.doctor", [], 2),
    ],
)
def test_a_full_standard_output_is_an_error_of_its_own(
    module: str, arguments: list[str], code: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", module, *arguments]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].endswith("No space left on device")
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_a_result_that_cannot_be_written_is_not_a_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert written("report", 3, lambda: 1) == 1

    def full() -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert written("report", 3, full) == 3
    assert capsys.readouterr().err == ("report: cannot write the result: No space left on device\n")
