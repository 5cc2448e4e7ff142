# SPDX-License-Identifier: Apache-2.0
"""Operators called from several threads at once, and from inside a parallel region."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from .bits import assert_same_bits, same_bits
from .test_stage_one_search import compiler
from .trials import Trial

ops = torch.ops.batch_invariant_ops

REGION = """
void in_parallel_region(int threads, void (*body)(int)) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int i = 0; i < threads; ++i) body(i);
}
"""


def compute(seed: int) -> list[torch.Tensor]:
    """Each kind of operator once, on inputs large enough for several tasks."""
    trial = Trial(seed, "padded", (1, 1))
    x, weight = (trial.values(65, 300, dtype=torch.float32) for _ in range(2))
    query = trial.values(65, 4, 16, dtype=torch.bfloat16)
    return [
        ops.npu_linear_batch_invariant(x, weight),
        ops.npu_softmax_batch_invariant(x, 1),
        ops.npu_reduce_sum_batch_invariant(trial.values(100_000, dtype=torch.float32), 0),
        *ops.npu_rms_norm_batch_invariant(x, weight[0]),
        *ops.npu_fused_infer_attention_score_batch_invariant(
            query, query, query, actual_seq_lengths=[30, 65], actual_seq_lengths_kv=[30, 65],
            num_heads=4, input_layout="TND", sparse_mode=3, softmax_lse_flag=True,
        ),
    ]  # fmt: skip


def assert_same_results(found: list[torch.Tensor], wanted: list[torch.Tensor], what: str) -> None:
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert_same_bits(one, other, f"{what}, result {index}")


def test_python_threads_do_not_disturb_one_another() -> None:
    wanted = [compute(seed) for seed in range(8)]
    assert not same_bits(wanted[0][0], wanted[1][0])
    with ThreadPoolExecutor(8) as pool:
        for seed, found in zip([*range(8)] * 6, pool.map(compute, [*range(8)] * 6), strict=True):
            assert_same_results(found, wanted[seed], f"seed {seed}")


def test_inside_a_parallel_region_results_are_the_same(tmp_path: Path) -> None:
    """As where PyTorch calls an operator from its own parallel loop."""
    library = tmp_path / "libregion.so"
    options = ["-shared", "-fPIC", "-fopenmp", "-x", "c", "-"]
    command = [compiler(), *options, "-o", str(library)]
    subprocess.run(command, input=REGION, text=True, check=True)
    region = ctypes.CDLL(str(library)).in_parallel_region
    wanted = [compute(seed) for seed in range(3)]
    found: dict[int, list[torch.Tensor]] = {}

    def body(seed: int) -> None:
        found[seed] = compute(seed)

    region(3, ctypes.CFUNCTYPE(None, ctypes.c_int)(body))
    assert sorted(found) == [0, 1, 2]
    for seed, results in found.items():
        assert_same_results(results, wanted[seed], f"seed {seed}")


FIRST_CALL = """
import threading
import batch_invariant_ops, torch
start, found = threading.Barrier(16), []
def first():
    start.wait()
    found.append(torch.ops.batch_invariant_ops.npu_mm_batch_invariant(torch.ones(4, 5),
                                                                      torch.ones(5, 4)))
threads = [threading.Thread(target=first) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 16 and all(x.eq(5).all() for x in found)
with open("/proc/self/maps") as maps:
    print(len({line.split()[-1] for line in maps if "libcust_opapi" in line}))
"""


def test_the_first_call_may_come_from_many_threads() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


def test_work_is_spread_over_torchs_threads_and_no_others() -> None:
    """An embedder pins torch's threads to cores; threads started beside them would share one."""

    def tasks() -> set[str]:
        return {path.name for path in Path("/proc/self/task").iterdir()}

    torch.set_num_threads(2)
    a, b = torch.ones(1024, 2048), torch.ones(2048, 2048)
    during: set[str] = set()
    samples = 0
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ops.npu_mm_batch_invariant, a, b).result()
        before = tasks()
        running = pool.submit(ops.npu_mm_batch_invariant, a, b)
        while not running.done():
            during |= tasks()
            samples += 1
    assert samples >= 3
    assert during <= before
