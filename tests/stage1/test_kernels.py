# SPDX-License-Identifier: Apache-2.0
"""Stage 1 builds without a warning, and its C++ tests pass for each instruction set, also under
the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
# Every C++ test there is runs once for each of these; a machine reports those it lacks by name.
ISAS = ("portable", "avx512", "avx512_bf16")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-8000:]}"
    return done.stdout


def build(directory: Path, compiler: str, *options: str) -> None:
    run(
        *("cmake", "-S", CSRC, "-B", directory, "-DBI_SOC=cpu", "-DBI_BUILD_TESTS=ON"),
        *(f"-DCMAKE_CXX_COMPILER={compiler}", *options),
    )
    run("cmake", "--build", directory, "--parallel", str(os.cpu_count() or 1))


def run_tests(directory: Path) -> dict[str, str]:
    """ctest's verdict ("Passed", "Skipped") by name of test; fails if one fails."""
    report = run("ctest", "--test-dir", directory, "--output-on-failure", "--no-tests=error")
    verdicts = dict(re.findall(r"Test +#\d+: (\S+) \.+ *\**(Passed|Skipped)", report))
    assert verdicts, report
    return verdicts


def check_verdicts(verdicts: dict[str, str]) -> None:
    sources = {path.stem for path in CSRC.glob("ops/*/cpu/*_test.cc")}
    assert {"matmul_test", "grouped_matmul_test"} <= sources
    for source in sources:
        assert verdicts[f"{source}.portable"] == "Passed"
    for name, verdict in verdicts.items():
        assert name.rpartition(".")[2] in ISAS
        # Only an instruction set that the machine lacks is skipped, and then for every test alike.
        if verdict == "Skipped":
            isa = name.rpartition(".")[2]
            assert all(verdicts[f"{source}.{isa}"] == "Skipped" for source in sources)


def test_no_warnings_and_the_kernels_keep_their_contracts(tmp_path: Path) -> None:
    build(tmp_path, "g++", "-DCMAKE_CXX_FLAGS=-Werror")
    check_verdicts(run_tests(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on this machine")
def test_another_compiler_gives_no_warnings_and_the_same_bits(tmp_path: Path) -> None:
    build(tmp_path, "clang++", "-DCMAKE_CXX_FLAGS=-Werror")
    check_verdicts(run_tests(tmp_path))


@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    # -O1: at -O3 the sanitized kernels take many minutes to compile.
    build(
        tmp_path,
        "g++",
        "-DBI_SANITIZE=address,undefined",
        "-DCMAKE_BUILD_TYPE=Sanitized",
        "-DCMAKE_CXX_FLAGS=-O1",
    )
    check_verdicts(run_tests(tmp_path))
