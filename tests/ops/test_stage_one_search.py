# SPDX-License-Identifier: Apache-2.0
"""How the wheel finds the operator library of stage 1, and what it says when it cannot use one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "csrc/op_api/include/batch_invariant.h"
LIBRARY = Path("op_api/lib/libcust_opapi.so")

# A library that answers bi_version() with VERSION and refuses every operator.
FAKE = """
#include "batch_invariant.h"
uint32_t bi_abi_version(void) { return ABI; }
const char *bi_version(void) { return VERSION; }
const char *bi_cpu_isa(void) { return "fake"; }
const char *bi_last_error(void) { return "the fake library computes nothing"; }
void bi_set_run(bi_run run) { (void)run; }
#define REFUSE(name, ...) bi_status name(__VA_ARGS__) { return BI_INVALID_ARGUMENT; }
typedef const bi_tensor *T;
REFUSE(bi_matmul, T a, T b, T c, T d, int t)
size_t bi_matmul_packed_size(int64_t e, int64_t k, int64_t n, int32_t d) { return 0; }
REFUSE(bi_matmul_pack, T b, void *p, size_t s, int t)
REFUSE(bi_matmul_packed, T a, const void *p, size_t s, T b, T o, int t)
REFUSE(bi_grouped_matmul, T a, T b, const void *p, size_t s, const int64_t *g, int64_t e, T o,
       int t)
REFUSE(bi_reduce_sum, T x, const int32_t *d, int32_t n, T o, int t)
REFUSE(bi_reduce_mean, T x, const int32_t *d, int32_t n, T o, int t)
REFUSE(bi_softmax, T x, int32_t d, T o, int t)
REFUSE(bi_log_softmax, T x, int32_t d, T o, int t)
REFUSE(bi_rms_norm, T x, T r, T w, double e, T o, T ro, T s, int t)
#ifndef WITHOUT_ATTENTION
REFUSE(bi_attention, const bi_attention_args *a, int t)
#endif
"""

# Run in a process of its own: a library stays loaded until the process ends.
PROLOGUE = """
import os, sys
sys.prefix = os.environ["TEST_PREFIX"]
import batch_invariant_ops, torch
mm = torch.ops.batch_invariant_ops.npu_mm_batch_invariant
ones = torch.ones(2, 2)
"""


def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    assert found, "these tests compile small libraries: a C compiler is needed"
    return found


def compile_fake(target: Path, version: str, *flags: str, abi: int = 1) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    defines = [f'-DVERSION="{version}"', f"-DABI={abi}", f"-I{HEADER.parent}"]
    command = [
        compiler(),
        "-w",
        "-shared",
        "-fPIC",
        *defines,
        *flags,
        "-x",
        "c",
        "-",
        "-o",
        str(target),
    ]
    subprocess.run(command, input=FAKE, text=True, check=True)


Run = Callable[..., str]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A prefix without stage 1, with a space and a letter outside ASCII in its name."""
    path = tmp_path / "préfix of a user"
    path.mkdir()
    return path


@pytest.fixture
def run(tmp_path: Path, prefix: Path) -> Run:
    """Runs Python lines in a fresh process and returns what they print."""

    def call(lines: str, **variables: str) -> str:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ASCEND_", "BI_"))
        }
        result = subprocess.run(
            [sys.executable, "-c", PROLOGUE + lines],
            env=kept | {"TEST_PREFIX": str(prefix)} | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    return call


ERROR = """
try:
    mm(ones, ones)
except RuntimeError as error:
    print(error)
"""
VERSION = "print(batch_invariant_ops.library().version)"


def test_importing_needs_no_stage_one(run: Run) -> None:
    assert run("print('imported')") == "imported"


def test_meta_tensors_need_no_stage_one(run: Run) -> None:
    assert run("print(*mm(ones.to('meta'), ones.to('meta')).shape)") == "2 2"


def test_without_stage_one_the_error_says_what_to_install_and_where_was_searched(
    run: Run, prefix: Path, tmp_path: Path
) -> None:
    message = run(
        ERROR, ASCEND_CUSTOM_OPP_PATH=f"{tmp_path}/one:{tmp_path}/two", ASCEND_OPP_PATH="/no/cann"
    )
    for words in (
        "npu_mm_batch_invariant",
        "ascendc-batch-invariant-ops",
        "bash csrc/build_batch_invariant_ops.sh cpu",
        f"ASCEND_CUSTOM_OPP_PATH={tmp_path}/one:{tmp_path}/two",
        f"{prefix}/share/ascend/opp",
        "ASCEND_OPP_PATH=/no/cann",
    ):
        assert words in message
    assert len(message.splitlines()) == 2


def test_unset_variables_are_named_as_such(run: Run) -> None:
    message = run(ERROR)
    assert "ASCEND_CUSTOM_OPP_PATH (not set)" in message
    assert "ASCEND_OPP_PATH (not set)" in message


def test_library_says_the_same_when_there_is_none(run: Run) -> None:
    lines = """
try:
    batch_invariant_ops.library()
except RuntimeError as error:
    print(error)
"""
    assert "ascendc-batch-invariant-ops" in run(lines)


def test_the_order_is_custom_then_prefix_then_cann(run: Run, prefix: Path, tmp_path: Path) -> None:
    custom, cann = tmp_path / "custom", tmp_path / "cann"
    vendor = Path("vendors/batch_invariant")
    places = {
        "cann": cann / vendor,
        "prefix": prefix / "share/ascend/opp" / vendor,
        "custom": custom / vendor,
    }
    variables = {"ASCEND_CUSTOM_OPP_PATH": str(custom), "ASCEND_OPP_PATH": str(cann)}
    for name, place in places.items():
        compile_fake(place / LIBRARY, name)
        assert run(VERSION, **variables) == name


def test_custom_entries_are_taken_left_to_right_in_both_forms(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    vendor = tmp_path / "elsewhere/vendors/batch_invariant"
    compile_fake(root / "vendors/batch_invariant" / LIBRARY, "root")
    compile_fake(vendor / LIBRARY, "vendor")
    nothing = tmp_path / "nothing"
    order = f"{nothing}::{root}:{vendor}/"
    assert run(VERSION, ASCEND_CUSTOM_OPP_PATH=order) == "root"
    order = f"{nothing}:{vendor}/:{root}"
    assert run(VERSION, ASCEND_CUSTOM_OPP_PATH=order) == "vendor"


def test_packages_of_other_vendors_are_passed_over(run: Run, tmp_path: Path) -> None:
    other, ours = tmp_path / "opp/vendors/customize", tmp_path / "ours"
    compile_fake(other / LIBRARY, "other vendor")
    compile_fake(ours / "vendors/batch_invariant" / LIBRARY, "ours")
    assert run(VERSION, ASCEND_CUSTOM_OPP_PATH=f"{other}:{ours}") == "ours"


def test_a_relative_entry_is_opened_by_its_absolute_path(run: Run, tmp_path: Path) -> None:
    library = tmp_path / "opp/vendors/batch_invariant" / LIBRARY
    compile_fake(library, "relative")
    path = run("print(batch_invariant_ops.library().path)", ASCEND_CUSTOM_OPP_PATH="opp")
    assert path == str(library)


def test_the_environment_may_be_set_after_the_import_and_after_a_failure(
    run: Run, tmp_path: Path
) -> None:
    compile_fake(tmp_path / "late/vendors/batch_invariant" / LIBRARY, "late")
    lines = f"""
try:
    mm(ones, ones)
except RuntimeError as error:
    assert "ascendc-batch-invariant-ops" in str(error)
os.environ["ASCEND_CUSTOM_OPP_PATH"] = {str(tmp_path / "late")!r}
"""
    assert run(lines + VERSION) == "late"


def test_library_describes_what_is_in_use(run: Run, tmp_path: Path) -> None:
    library = tmp_path / "vendors/batch_invariant" / LIBRARY
    compile_fake(library, "7.8.9")
    lines = "print(*batch_invariant_ops.library(), sep='|')"
    found = run(lines, ASCEND_CUSTOM_OPP_PATH=str(tmp_path))
    assert found == f"{library}|7.8.9|fake|1"


def test_what_the_library_refuses_reaches_the_caller_in_its_words(run: Run, tmp_path: Path) -> None:
    compile_fake(tmp_path / "vendors/batch_invariant" / LIBRARY, "1")
    message = run(ERROR, ASCEND_CUSTOM_OPP_PATH=str(tmp_path))
    assert message == "npu_mm_batch_invariant: the fake library computes nothing"


def broken(kind: str, library: Path) -> None:
    if kind == "another interface version":
        compile_fake(library, "9", abi=99)
    elif kind == "a function is missing":
        compile_fake(library, "0", "-DWITHOUT_ATTENTION")
    elif kind == "another library":
        library.parent.mkdir(parents=True)
        command = [compiler(), "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input="int other;", text=True, check=True)
    elif kind == "another architecture":
        compile_fake(library, "0")
        image = bytearray(library.read_bytes())
        here, e_machine = image[18], 18
        image[e_machine] = 183 if here == 62 else 62  # EM_AARCH64, EM_X86_64
        library.write_bytes(image)
    elif kind == "cut off":
        compile_fake(library, "0")
        whole = library.read_bytes()
        library.write_bytes(whole[: len(whole) // 2])
    elif kind == "empty":
        library.parent.mkdir(parents=True)
        library.touch()
    elif kind == "not a library":
        library.parent.mkdir(parents=True)
        library.write_text("version https://example.invalid/spec: a pointer to a large file\n" * 9)
    else:
        raise AssertionError(kind)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("another interface version", "has interface version 99, and"),
        ("a function is missing", "has no function bi_attention"),
        ("another library", "is not the operator library for soc=cpu"),
        ("another architecture", ", and this is "),
        ("cut off", "it is damaged"),
        ("empty", "it is damaged"),
        ("not a library", "it is damaged"),
    ],
)
def test_a_library_that_cannot_be_used_is_named_with_the_reason(
    kind: str, words: str, run: Run, tmp_path: Path
) -> None:
    library = tmp_path / "vendors/batch_invariant" / LIBRARY
    broken(kind, library)
    message = run(ERROR, ASCEND_CUSTOM_OPP_PATH=str(tmp_path))
    assert words in message and str(library) in message
    assert "install" in message
    assert len(message.splitlines()) == 1


def test_the_real_library_is_in_use_here(
    stage_one: tuple[Path, str, str, int],
) -> None:
    path, version, isa, abi = stage_one
    assert path.is_file() and path.name == LIBRARY.name
    assert version == (ROOT / "csrc/VERSION").read_text().strip()
    assert isa in {"portable", "avx2", "avx512", "avx512_bf16", "amx", "neon"}
    assert abi == 1
    assert (
        torch.ops.batch_invariant_ops.npu_mm_batch_invariant(torch.ones(2, 3), torch.ones(3, 2))
        .eq(3)
        .all()
    )
