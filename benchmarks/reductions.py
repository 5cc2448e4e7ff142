# SPDX-License-Identifier: Apache-2.0
"""Speed of the batch-invariant reductions relative to torch's own.

Stock and ours take turns in one run; figures are medians. A ratio is torch's time over ours: above
1, ours is faster. --cpu-time counts CPU time instead of the wall clock, for a machine that others
load; it only means something with --threads 1.
"""

from __future__ import annotations

import argparse
import time

import batch_invariant_ops  # noqa: F401  registers the operators
import torch
from turns import Call, seconds_in_turns

# Rows x length: a layer's hidden state at decode and prefill, and a vocabulary.
SHAPES = ((32, 4096), (1024, 4096), (1, 151936), (32, 151936))
EPSILON = 1e-6


def pairs(x: torch.Tensor) -> dict[str, tuple[Call, Call]]:
    """Per operator: torch's call, ours. x is [rows, length]."""
    ops = torch.ops.batch_invariant_ops
    weight = torch.ones(x.shape[-1], dtype=x.dtype)
    columns = x.t()
    return {
        "sum": (lambda: x.sum(-1), lambda: ops.npu_reduce_sum_batch_invariant(x, -1)),
        "sum, strided": (
            lambda: columns.sum(0),
            lambda: ops.npu_reduce_sum_batch_invariant(columns, 0),
        ),
        "sum of dim 0": (lambda: x.sum(0), lambda: ops.npu_reduce_sum_batch_invariant(x, 0)),
        "mean": (lambda: x.mean(-1), lambda: ops.npu_reduce_mean_batch_invariant(x, -1)),
        "softmax": (lambda: x.softmax(-1), lambda: ops.npu_softmax_batch_invariant(x, -1)),
        "log_softmax": (
            lambda: x.log_softmax(-1),
            lambda: ops.npu_log_softmax_batch_invariant(x, -1),
        ),
        "rms_norm": (
            lambda: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, EPSILON),
            lambda: ops.npu_rms_norm_batch_invariant(x, weight, EPSILON),
        ),
    }


def main() -> None:
    """Prints one line per operator, shape and dtype."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.cpu_time and args.threads != 1:
        parser.error("--cpu-time: expected --threads 1")
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    print(
        f"{'operator':14} {'shape':>14} {'dtype':>9} {'torch us':>10} {'ours us':>10} {'ratio':>6}"
    )
    for rows, length in SHAPES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            x = torch.randn(rows, length).to(dtype)
            for name, calls in pairs(x).items():
                stock, ours = seconds_in_turns(list(calls), args.turns, clock)
                kind = str(dtype).removeprefix("torch.")
                print(
                    f"{name:14} {f'{rows}x{length}':>14} {kind:>9} {stock * 1e6:10.1f} "
                    f"{ours * 1e6:10.1f} {stock / ours:6.2f}"
                )


if __name__ == "__main__":
    main()
