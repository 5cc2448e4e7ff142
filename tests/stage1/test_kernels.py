# SPDX-License-Identifier: Apache-2.0
"""Stage 1 builds without a warning, and its C++ tests pass for each instruction set, with the same
bits where they promise them, also under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
# The instruction sets, and what the kernel calls the features that a machine needs for each. Every
# C++ test runs once for each of them.
ISAS = {
    "portable": set[str](),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx512_bf16": {"avx512vl", "avx512_bf16"},
}


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


@dataclass(frozen=True)
class Outcome:
    verdict: str  # ctest's: "Passed" or "Skipped"
    digest: str  # of the bits of all results, or ""


def run_tests(directory: Path) -> dict[str, dict[str, Outcome]]:
    """What each test says under each instruction set; fails if one fails."""
    report = run("ctest", "--test-dir", directory, "--verbose", "--no-tests=error")
    digests = dict(re.findall(r"^(\d+): digest ([0-9a-f]{16})$", report, re.M))
    outcomes: dict[str, dict[str, Outcome]] = {}
    for number, name, verdict in re.findall(
        r"Test +#(\d+): (\S+) \.+ *\**(Passed|Skipped)", report
    ):
        test, _, isa = name.rpartition(".")
        outcomes.setdefault(test, {})[isa] = Outcome(verdict, digests.get(number, ""))
    assert outcomes, report
    return outcomes


def machine_features() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(set(line.split()) for line in lines if line.startswith("flags"))


def check(outcomes: dict[str, dict[str, Outcome]]) -> None:
    sources = {path.stem for path in CSRC.rglob("cpu/*_test.cc")}
    assert {"matmul_test", "vec_test"} <= sources == outcomes.keys()
    features = machine_features()
    for test, by_isa in outcomes.items():
        # Skipped is what the machine lacks, and nothing else.
        expected = {isa: "Passed" if need <= features else "Skipped" for isa, need in ISAS.items()}
        assert {isa: outcome.verdict for isa, outcome in by_isa.items()} == expected, test
        digests = {outcome.digest for outcome in by_isa.values() if outcome.verdict == "Passed"}
        assert len(digests) == 1, f"{test}: not the same bits, {by_isa}"


def test_no_warnings_and_the_kernels_keep_their_contracts(tmp_path: Path) -> None:
    build(tmp_path, "g++", "-DCMAKE_CXX_FLAGS=-Werror")
    check(run_tests(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on this machine")
def test_another_compiler_gives_no_warnings_and_the_same_bits(tmp_path: Path) -> None:
    build(tmp_path, "clang++", "-DCMAKE_CXX_FLAGS=-Werror")
    check(run_tests(tmp_path))


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
    check(run_tests(tmp_path))
