# SPDX-License-Identifier: Apache-2.0
"""Speed of the batch-invariant matmul relative to torch's own, over the layers of Qwen3.

Two uses of each weight [N, K] are timed, stock and ours taking turns in one run, so that what else
the machine does meets both:
  packed  torch.nn.functional.linear(x, w)  against  npu_linear_packed (packed once at load)
  plain   torch.mm(x, w.t())                against  npu_mm (nothing prepared)
A ratio is torch's time over ours: above 1, ours is faster. Times are medians of the wall clock; on
a machine that others load, --best takes the fastest call instead, and --cpu-time, for one thread,
counts the time it ran. The results are compared bit for bit on the way (packed against plain, one
row alone against all rows); a difference is an error.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import batch_invariant_ops
import torch
from turns import Call, seconds_in_turns

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# K x N of linear layers: Qwen3-1.7B (mlp up, mlp down, a slice of the 151936 rows of lm_head) and
# Qwen3-8B (attention output, mlp up, mlp down).
SHAPES = ("2048x6144", "6144x2048", "2048x32768", "4096x4096", "4096x12288", "12288x4096")
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

EXAMPLE = """example:
  python benchmarks/matmul.py --threads 1 2 --json matmul.json --plot matmul.svg
  python benchmarks/matmul.py --threads 2 --dtypes bfloat16 --shapes 4096x4096 --rows 1 16 256
"""


@dataclass(frozen=True)
class Result:
    """Seconds of one call each."""

    dtype: str
    threads: int
    k: int
    n: int
    rows: int
    torch_linear: float
    packed: float
    torch_mm: float
    plain: float

    def ratio(self, use: str) -> float:
        if use == "packed":
            return self.torch_linear / self.packed
        return self.torch_mm / self.plain


USES = ("packed", "plain")


def shape(text: str) -> tuple[int, int]:
    k, separator, n = text.partition("x")
    if not separator or not k.isdigit() or not n.isdigit():
        raise argparse.ArgumentTypeError(f"expected KxN such as 4096x12288, found {text!r}")
    return int(k), int(n)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, found {text!r}")
    return int(text)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=positive, nargs="+", default=[torch.get_num_threads()])
    parser.add_argument("--dtypes", choices=sorted(DTYPES), nargs="+", default=list(DTYPES))
    parser.add_argument(
        "--shapes", type=shape, nargs="+", default=[shape(s) for s in SHAPES], metavar="KxN"
    )
    parser.add_argument("--rows", type=positive, nargs="+", default=list(ROWS), metavar="M")
    parser.add_argument("--repeats", type=positive, default=5, help="calls of each (default: 5)")
    parser.add_argument("--best", action="store_true", help="the fastest call, not the median")
    parser.add_argument(
        "--cpu-time", action="store_true", help="CPU time of the thread; needs --threads 1"
    )
    parser.add_argument(
        "--at-least", type=float, metavar="R", help="exit 1 if a geometric mean is below R"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every time here")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios here, as SVG")
    args = parser.parse_args(argv)
    if args.cpu_time and args.threads != [1]:
        parser.error("--cpu-time sees one thread only: add --threads 1")
    return args


@dataclass(frozen=True)
class Timing:
    repeats: int
    clock: Callable[[], float]
    summary: Callable[[list[float]], float]

    def seconds(self, calls: Sequence[Call]) -> list[float]:
        return seconds_in_turns(calls, self.repeats, self.clock, self.summary)


def bits(t: torch.Tensor) -> torch.Tensor:
    return t.view(torch.int32 if t.dtype == torch.float32 else torch.int16)


def measure(
    dtype: str, threads: int, k: int, n: int, row_counts: Sequence[int], timing: Timing
) -> list[Result]:
    ops = torch.ops.batch_invariant_ops
    generator = torch.Generator().manual_seed(k + n)
    weight = (torch.randn(n, k, generator=generator) / math.sqrt(k)).to(DTYPES[dtype])
    packed = ops.npu_weight_pack_batch_invariant(weight)
    results = []
    for rows in row_counts:
        x = torch.randn(rows, k, generator=generator).to(DTYPES[dtype])

        def ours_packed(x: torch.Tensor = x) -> torch.Tensor:
            return ops.npu_linear_packed_batch_invariant(x, packed, n)

        def ours_plain(x: torch.Tensor = x) -> torch.Tensor:
            return ops.npu_mm_batch_invariant(x, weight.t())

        def stock_linear(x: torch.Tensor = x) -> torch.Tensor:
            return torch.nn.functional.linear(x, weight)

        def stock_mm(x: torch.Tensor = x) -> torch.Tensor:
            return torch.mm(x, weight.t())

        whole = ours_packed()
        alone = ours_packed(x[-1:])
        if not torch.equal(bits(whole), bits(ours_plain())):
            raise SystemExit(f"packed and plain differ: {dtype} {k}x{n}, {rows} rows")
        if not torch.equal(bits(whole[-1:]), bits(alone)):
            raise SystemExit(f"a row depends on the others: {dtype} {k}x{n}, {rows} rows")
        linear, mine, mm, plain = timing.seconds((stock_linear, ours_packed, stock_mm, ours_plain))
        results.append(Result(dtype, threads, k, n, rows, linear, mine, mm, plain))
    return results


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def print_row(r: Result) -> None:
    giga = 2e-9 * r.rows * r.k * r.n
    print(
        f"{r.dtype:8} {r.threads:2} {r.k:5}x{r.n:<5} {r.rows:4} "
        f"{r.torch_linear * 1e3:9.2f} {r.packed * 1e3:9.2f} {r.ratio('packed'):6.2f} "
        f"{r.torch_mm * 1e3:9.2f} {r.plain * 1e3:9.2f} {r.ratio('plain'):6.2f} "
        f"{giga / r.packed:8.0f} {giga / r.torch_linear:8.0f}",
        flush=True,
    )


def means(results: Sequence[Result]) -> list[dict[str, object]]:
    groups = sorted({(r.dtype, r.threads) for r in results})
    return [
        {
            "dtype": dtype,
            "threads": threads,
            "use": use,
            "geometric_mean": geometric_mean(
                [r.ratio(use) for r in results if (r.dtype, r.threads) == (dtype, threads)]
            ),
        }
        for dtype, threads in groups
        for use in USES
    ]


def plot(results: Sequence[Result]) -> str:
    """An SVG: ratio (geometric mean over the shapes) over M, a line a dtype, threads and use."""
    width, height, left, top = 640, 400, 50, 20
    row_counts = sorted({r.rows for r in results})
    series: dict[str, list[float]] = {}
    for dtype, threads in sorted({(r.dtype, r.threads) for r in results}):
        for use in USES:
            series[f"{dtype}, {threads} threads, {use}"] = [
                geometric_mean(
                    [
                        r.ratio(use)
                        for r in results
                        if (r.dtype, r.threads, r.rows) == (dtype, threads, rows)
                    ]
                )
                for rows in row_counts
            ]
    highest = max(2.0, *(max(line) for line in series.values()))

    def at(i: int, ratio: float) -> str:
        x = left + i * width / max(1, len(row_counts) - 1)
        return f"{x:.1f},{top + height * (1 - ratio / highest):.1f}"

    colours = ("#0b6", "#06c", "#c40", "#808", "#660", "#088", "#c06", "#444")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 240}" '
        f'height="{top + height + 40}" font-family="sans-serif" font-size="12">'
    ]
    for tick in range(int(highest) + 1):
        y = at(0, tick).split(",")[1]
        parts.append(f'<path d="M{left},{y}h{width}" stroke="#ccc"/>')
        parts.append(f'<text x="{left - 24}" y="{y}">{tick}</text>')
    for i, rows in enumerate(row_counts):
        x = at(i, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{top + height + 16}">{rows}</text>')
    parts.append(f'<text x="{left}" y="{top + height + 34}">rows M; torch time / ours</text>')
    for index, (name, line) in enumerate(series.items()):
        colour = colours[index % len(colours)]
        points = " ".join(at(i, ratio) for i, ratio in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        below = top + 16 * (index + 1)
        parts.append(f'<text x="{left + width + 12}" y="{below}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    library = batch_invariant_ops.library()
    print(f"torch {torch.__version__}; operator library {library.version} ({library.isa})")
    print(
        f"{'dtype':8} {'th':>2} {'KxN':>11} {'M':>4} "
        f"{'linear ms':>9} {'packed ms':>9} {'ratio':>6} "
        f"{'mm ms':>9} {'plain ms':>9} {'ratio':>6} {'GFLOP/s':>8} {'torch':>8}"
    )
    timing = Timing(
        args.repeats,
        time.thread_time if args.cpu_time else time.perf_counter,
        min if args.best else statistics.median,
    )
    results: list[Result] = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        for dtype in args.dtypes:
            for k, n in args.shapes:
                for result in measure(dtype, threads, k, n, args.rows, timing):
                    print_row(result)
                    results.append(result)
    summary = means(results)
    print("\ngeometric mean of torch time / ours")
    for line in summary:
        print(
            f"  {line['dtype']:8} {line['threads']:2} threads  {line['use']:6}"
            f"  {line['geometric_mean']:.2f}"
        )
    if args.json is not None:
        record = {
            "torch": torch.__version__,
            "library": library.version,
            "isa": library.isa,
            "means": summary,
            "results": [asdict(r) for r in results],
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    if args.plot is not None:
        args.plot.write_text(plot(results))
    worst = min(geometric_mean([r.ratio(use) for r in results]) for use in USES)
    if args.at_least is not None and worst < args.at_least:
        print(f"below {args.at_least}: {worst:.2f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
