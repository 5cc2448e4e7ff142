# SPDX-License-Identifier: Apache-2.0
"""Configures and compiles stage 1 with its C++ tests; what of them this machine runs."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
# The instruction sets of x86-64, and what /proc/cpuinfo calls the features that each needs. Every
# C++ test runs once for each of them.
X86_64 = {
    "portable": set[str](),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"},
}
# These add matrix instructions: tests of matmul run for them too. `amx_model` is AMX in software.
X86_64_MATRIX = {
    "avx512_bf16": {"avx512vl", "avx512_bf16"},
    "amx": {"avx512vl", "amx_tile", "amx_bf16"},
    "amx_model": set[str](),
}
# Those of AArch64 are run by every such machine.
AARCH64 = ("portable", "neon")


def run(*command: str | Path) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-8000:]}"
    return done.stdout


def build(directory: Path, *options: str) -> None:
    run(
        *("cmake", "-S", CSRC, "-B", directory, "-DBI_SOC=cpu", "-DBI_BUILD_TESTS=ON"),
        *options,
    )
    run("cmake", "--build", directory, "--parallel", str(os.cpu_count() or 1))


def aarch64_verdicts(_test: str) -> dict[str, str]:
    return dict.fromkeys(AARCH64, "Passed")


def native_verdicts(test: str) -> dict[str, str]:
    """What this machine runs passes, what it lacks is skipped, and nothing else is."""
    if platform.machine() == "aarch64":
        return aarch64_verdicts(test)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    features = next(set(line.split()) for line in lines if line.startswith("flags"))
    isas = X86_64 | X86_64_MATRIX if "matmul" in test or test == "fuzz" else X86_64
    return {isa: "Passed" if need <= features else "Skipped" for isa, need in isas.items()}
