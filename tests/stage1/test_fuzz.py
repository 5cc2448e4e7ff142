# SPDX-License-Identifier: Apache-2.0
"""Random calls of the operators give what the reference gives (csrc/fuzz/README.md), also under the
address and undefined-behaviour sanitizers; and the fuzzer notices what is wrong.

700 calls for each instruction set are made by CTest (test_kernels.py)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .cmake import CSRC, ROOT, native_verdicts, run

CALLS = 100_000


def fuzz(
    build: Path, *options: str, program: str = "fuzz", isa: str = "", fault: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [build / "fuzz" / program, *options],
        env={**os.environ, "BI_CPU_ISA": isa, "BI_FUZZ_FAULT": fault},
        capture_output=True,
        text=True,
    )


def wrong_sum(build: Path, fault: str, *options: str) -> subprocess.CompletedProcess[str]:
    return fuzz(build, *options, "--operator", "reduce_sum", program="fuzz_wrong_sum", fault=fault)


def digest(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    found = re.search(r"digest ([0-9a-f]{16})", done.stdout)
    assert found, done.stdout
    return found[1]


def test_a_seed_stands_for_the_same_calls(native_build: Path) -> None:
    one = digest(fuzz(native_build, "--seed", "7", "--calls", "40"))
    assert digest(fuzz(native_build, "--seed", "7", "--calls", "40", isa="portable")) == one
    assert digest(fuzz(native_build, "--seed", "8", "--calls", "40")) != one


@pytest.mark.parametrize("fault", ["value", "finite", "nan", "accept", "input"])
def test_a_wrong_operator_is_found(native_build: Path, fault: str) -> None:
    done = wrong_sum(native_build, fault, "--calls", "150")
    assert done.returncode == 1
    findings = re.findall(r"^finding in call (\d+): reduce_sum: ", done.stderr, re.M)
    assert findings, done.stderr
    # Alone, the call has the same fault.
    again = wrong_sum(native_build, fault, "--first", findings[0], "--calls", "1")
    assert again.returncode == 1
    assert again.stderr.splitlines()[0] in done.stderr


@pytest.mark.parametrize("fault", ["beyond", "read"])
def test_an_access_behind_a_tensor_is_stopped(native_build: Path, fault: str) -> None:
    """Without a sanitizer it is the inaccessible page that stops it."""
    done = wrong_sum(native_build, fault, "--calls", "150", "--trace")
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGABRT)
    assert done.stderr.startswith("call 0: reduce_sum\n")


def test_the_right_operator_has_no_fault(native_build: Path) -> None:
    assert wrong_sum(native_build, "none", "--calls", "150").returncode == 0


@pytest.mark.parametrize(
    "options", [("--calls", "many"), ("--operator", "sum"), ("--seed",), ("--quiet",)]
)
def test_wrong_usage_is_one_line(native_build: Path, options: tuple[str, ...]) -> None:
    done = fuzz(native_build, *options)
    assert done.returncode == 2
    assert re.fullmatch(r"fuzz: .*; see --help\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["beyond", "read"])
def test_the_sanitizer_sees_an_access_behind_a_tensor(sanitized_build: Path, fault: str) -> None:
    done = wrong_sum(sanitized_build, fault, "--calls", "150")
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr


@pytest.mark.slow
def test_random_calls_under_the_sanitizers(sanitized_build: Path) -> None:
    made = 0
    runnable = [isa for isa, verdict in native_verdicts("fuzz").items() if verdict == "Passed"]
    for isa in runnable:
        # A seed of its own for each: more different calls.
        calls = -(-CALLS // len(runnable))
        options = ("--seed", str(runnable.index(isa)), "--calls", str(calls))
        done = fuzz(sanitized_build, *options, isa=isa)
        assert done.returncode == 0, done.stdout + done.stderr[-8000:]
        # The giants among the calls, which the sanitizer mentions as it refuses their memory.
        refused = re.compile(r"==\d+==WARNING: AddressSanitizer failed to allocate 0x\w+ bytes")
        assert [line for line in done.stderr.splitlines() if not refused.fullmatch(line)] == []
        counts = re.search(
            r"(\d+) calls, .* (\d+) elements compared, .* (\d+) undecided", done.stdout
        )
        assert counts, done.stdout
        made += int(counts[1])
        assert int(counts[3]) < int(counts[2]) / 100
    assert made >= CALLS


@pytest.mark.slow
def test_random_calls_from_python_under_the_sanitizer(
    sanitized_build: Path, tmp_path: Path
) -> None:
    """Stages 1 and 2 with the address sanitizer, in a Python that has it from the start."""
    opp = tmp_path / "opp" / "vendors" / "batch_invariant"
    run("cmake", "--install", sanitized_build, "--prefix", opp)
    flag = "-fsanitize=address"
    subprocess.run(
        [
            *(sys.executable, "setup.py", "-q", "build"),
            *("--build-lib", tmp_path / "stage2", "--build-temp", tmp_path / "objects"),
        ],
        cwd=CSRC / "torch_ops_extension",
        env={**os.environ, "CXXFLAGS": f"{flag} -O1", "LDFLAGS": flag},
        check=True,
    )
    # The sanitizer looks for what throws as it starts, and Python itself needs no C++.
    names = ("libasan.so", "libstdc++.so")
    runtime = ":".join(run("g++", f"-print-file-name={name}").strip() for name in names)
    done = subprocess.run(
        [sys.executable, "-m", "ops.random_calls", "1", "4000"],
        env={
            **os.environ,
            "LD_PRELOAD": runtime,
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "ASCEND_CUSTOM_OPP_PATH": str(opp),
            "PYTHONPATH": f"{tmp_path / 'stage2'}:{ROOT / 'tests'}",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert done.stdout == "4000 calls\n"
