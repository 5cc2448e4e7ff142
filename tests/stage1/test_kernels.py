# SPDX-License-Identifier: Apache-2.0
"""Stage 1 builds without a warning, and its C++ tests pass for each instruction set, with the same
bits where they promise them, also under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .cmake import CSRC, aarch64_verdicts, build, native_verdicts, run


def need(program: str, package: str) -> None:
    assert shutil.which(program) is not None, (
        f"this test needs {program}; on Debian: apt install {package}"
    )


@dataclass(frozen=True)
class Outcome:
    verdict: str  # ctest's: "Passed" or "Skipped"
    digest: str  # of the bits of all results, or ""


Outcomes = dict[str, dict[str, Outcome]]  # by test, by instruction set


def run_tests(directory: Path) -> Outcomes:
    """Runs every test under every instruction set; fails if one fails."""
    jobs = str(os.cpu_count() or 1)  # under emulation they take minutes
    report = run(
        *("ctest", "--test-dir", directory, "--verbose", "--no-tests=error", "--parallel", jobs)
    )
    digests = dict(re.findall(r"^(\d+): digest ([0-9a-f]{16})$", report, re.M))
    outcomes: Outcomes = {}
    for number, name, verdict in re.findall(
        r"Test +#(\d+): (\S+) \.+ *\**(Passed|Skipped)", report
    ):
        test, _, isa = name.rpartition(".")
        outcomes.setdefault(test, {})[isa] = Outcome(verdict, digests.get(number, ""))
    assert outcomes, report
    return outcomes


def check(outcomes: Outcomes, verdicts: Callable[[str], dict[str, str]]) -> None:
    sources = {path.stem for path in CSRC.rglob("cpu/*_test.cc")}
    assert {"matmul_test", "vec_test"} <= sources
    assert sources | {"fuzz"} == outcomes.keys()
    for test, by_isa in outcomes.items():
        assert {isa: outcome.verdict for isa, outcome in by_isa.items()} == verdicts(test), test
        assert len(digests(by_isa)) == 1, f"{test}: not the same bits, {by_isa}"


def digests(by_isa: dict[str, Outcome]) -> set[str]:
    return {outcome.digest for outcome in by_isa.values() if outcome.verdict == "Passed"}


@pytest.fixture(scope="module")
def native(native_build: Path) -> Outcomes:
    return run_tests(native_build)


def test_no_warnings_and_the_kernels_keep_their_contracts(native: Outcomes) -> None:
    check(native, native_verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "best"), [("Nehalem", "portable"), ("Haswell", "avx2")], ids=lambda p: str(p)
)
def test_an_older_processor_gets_the_best_it_runs(
    processor: str, best: str, native_build: Path
) -> None:
    need("qemu-x86_64", "qemu-user")
    environment = {name: value for name, value in os.environ.items() if name != "BI_CPU_ISA"}
    # Not vec_test, whose loads end where memory does: QEMU 7.2 was seen to touch masked lanes.
    for test in ("isa_test", "rms_norm_test", "reduce_test"):
        done = subprocess.run(
            ["qemu-x86_64", "-cpu", processor, native_build / test],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{best}: ok" in done.stdout


@pytest.mark.slow
def test_aarch64_gives_the_same_bits(tmp_path: Path, native: Outcomes) -> None:
    need("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    need("qemu-aarch64", "qemu-user")
    toolchain = CSRC / "cmake/aarch64-linux-gnu.cmake"
    build(tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DCMAKE_CXX_FLAGS=-Werror")
    emulated = run_tests(tmp_path)
    check(emulated, aarch64_verdicts)
    for test, by_isa in emulated.items():
        assert digests(by_isa) == digests(native[test]), f"{test}: not the bits of this machine"


@pytest.mark.slow
def test_another_compiler_gives_no_warnings_and_the_same_bits(
    tmp_path: Path, native: Outcomes
) -> None:
    need("clang++", "clang")
    build(tmp_path, "-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_CXX_FLAGS=-Werror")
    by_clang = run_tests(tmp_path)
    check(by_clang, native_verdicts)
    for test, by_isa in by_clang.items():
        assert digests(by_isa) == digests(native[test]), f"{test}: not the bits of g++'s build"


@pytest.mark.slow
def test_sanitizers_find_nothing(sanitized_build: Path) -> None:
    check(run_tests(sanitized_build), native_verdicts)
