# SPDX-License-Identifier: Apache-2.0
"""Stages 1 and 2 built to count their lines, run by their tests, and summed up."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .summary import Summary, of_gcovr_json

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
EXTENSION = CSRC / "torch_ops_extension"
# The wheel's own test is about the library that is shipped, which counts no lines.
OPERATOR_TESTS = ("tests/ops", "--ignore=tests/ops/test_wheel.py")
Run = Callable[..., None]


def build(work: Path, run: Run) -> dict[str, str]:
    """The environment in which Python finds the stages that count."""
    shutil.rmtree(work, ignore_errors=True)
    jobs = str(os.cpu_count() or 1)
    # -O1: at -O0 the portable kernels take minutes.
    run(
        *("cmake", "-S", CSRC, "-B", work / "stage1", "-DBI_SOC=cpu", "-DBI_BUILD_TESTS=ON"),
        *("-DBI_COVERAGE=ON", "-DCMAKE_BUILD_TYPE=Coverage", "-DCMAKE_CXX_FLAGS=-O1"),
    )
    run("cmake", "--build", work / "stage1", "--parallel", jobs)
    opp = work / "opp" / "vendors" / "batch_invariant"
    run("cmake", "--install", work / "stage1", "--prefix", opp)
    run(
        *(sys.executable, "setup.py", "build"),
        *("--build-lib", work / "stage2", "--build-temp", work / "objects"),
        cwd=EXTENSION,
        CXXFLAGS=f"--coverage -fprofile-update=atomic -O1 -ffile-prefix-map=src/={EXTENSION}/src/",
        LDFLAGS="--coverage",
    )
    # The compiler was told to call torch's folder so: gcovr looks for its headers under that name.
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    (work / "objects" / "torch").symlink_to(Path(torch.origin).parent)
    return {"ASCEND_CUSTOM_OPP_PATH": str(opp), "PYTHONPATH": str(work / "stage2")}


def measure(work: Path, run: Run, select: Sequence[str]) -> Summary:
    """The C++ tests, each instruction set this machine runs, and the tests of the operators."""
    environment = build(work, run)
    run("ctest", "--test-dir", work / "stage1", "--output-on-failure", "--no-tests=error")
    run(sys.executable, "-m", "pytest", "-q", *select, *OPERATOR_TESTS, **environment)
    report = work / "gcovr.json"
    run(
        *(sys.executable, "-m", "gcovr", "--root", ROOT, "--json-summary", report),
        *("--filter", f"{CSRC}/(cpu|ops|torch_ops_extension/src)/"),
        *("--exclude", r".*_test\.cc$", "--exclude", r".*/(testing|chain)\.h$"),
        *("--exclude", r".*/vec_operations\.(cc|h)$"),
        # A line is one line, however many functions the templates and instruction sets make of it.
        *("--merge-mode-functions", "separate", "--merge-lines"),
        # Inner loops run billions of times, and that is no fault of gcov's.
        *("--gcov-suspicious-hits-threshold", "0"),
        *(work / "stage1", work / "objects"),
    )
    return of_gcovr_json(json.loads(report.read_text()))
