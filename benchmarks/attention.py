# SPDX-License-Identifier: Apache-2.0
"""Speed of the batch-invariant attention relative to torch's scaled_dot_product_attention.

Prefill: one request of --length tokens, causal. Decode: --batch requests with --length keys each,
one query row each. Head counts are those of Qwen3-1.7B, 8B and 235B-A22B. Stock and ours take turns
in one run; figures are medians. A ratio is torch's time over ours: above 1, ours is faster. Keys
and values are contiguous for both. --cpu-time counts CPU time instead of the wall clock, for a
machine that others load; it only means something with --threads 1.
"""

from __future__ import annotations

import argparse
import time

import batch_invariant_ops  # noqa: F401  registers the operators
import torch
from torch.nn.functional import scaled_dot_product_attention
from turns import Call, seconds_in_turns

HEADS = ((16, 8), (32, 8), (64, 4))
HEAD_DIM = 128
BLOCK = 128


def ours(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, q_len: int, kv_len: int
) -> Call:
    """query [T, heads, D]; key, value [blocks, BLOCK, kv_heads * D]; equal requests, in order."""
    requests = query.shape[0] // q_len
    table = torch.arange(key.shape[0], dtype=torch.int32).view(requests, -1)
    q_ends = [q_len * (i + 1) for i in range(requests)]
    attention = torch.ops.batch_invariant_ops.npu_fused_infer_attention_score_batch_invariant
    # sparse_mode 3 is causal, aligned at the end; the mask itself is not read.
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    return lambda: attention(
        query,
        key,
        value,
        atten_mask=mask,
        actual_seq_lengths=q_ends,
        actual_seq_lengths_kv=[kv_len] * requests,
        block_table=table,
        block_size=BLOCK,
        num_heads=query.shape[1],
        num_key_value_heads=key.shape[2] // HEAD_DIM,
        input_layout="TND",
        scale=HEAD_DIM**-0.5,
        sparse_mode=3,
    )


def main() -> None:
    """Prints one line per phase, head counts and dtype."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--length", type=int, default=1024, help="a multiple of 128")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.cpu_time and args.threads != 1:
        parser.error("--cpu-time: expected --threads 1")
    if args.length % BLOCK != 0:
        parser.error(f"--length: expected a multiple of {BLOCK}")
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    length = args.length
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for heads, kv_heads in HEADS:
            for phase, requests, q_len in (("prefill", 1, length), ("decode", args.batch, 1)):
                query = torch.randn(requests * q_len, heads, HEAD_DIM).to(dtype)
                shape = (requests * length // BLOCK, BLOCK, kv_heads * HEAD_DIM)
                key, value = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
                dense = [
                    t.view(requests, -1, n, HEAD_DIM).transpose(1, 2)
                    for t, n in ((query, heads), (key, kv_heads), (value, kv_heads))
                ]

                def stock(
                    dense: list[torch.Tensor] = dense, causal: bool = q_len > 1
                ) -> torch.Tensor:
                    q, k, v = dense
                    return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

                mine = ours(query, key, value, q_len, length)
                a, b = seconds_in_turns([stock, mine], args.turns, clock)
                if phase == "prefill":
                    pairs = length * (length + 1) / 2
                    rate = f"{4 * pairs * heads * HEAD_DIM / b / 1e9:7.1f} GFLOP/s"
                else:
                    bytes_read = 2 * key.numel() * key.element_size()
                    rate = f"{bytes_read / b / 1e9:7.1f} GB/s"
                kind = str(dtype).removeprefix("torch.")
                print(
                    f"{phase:8} {f'{heads}/{kv_heads}':>6} {kind:>9} torch {a * 1e3:8.2f} ms  "
                    f"ours {b * 1e3:8.2f} ms  {rate}  ratio {a / b:6.2f}"
                )


if __name__ == "__main__":
    main()
