# SPDX-License-Identifier: Apache-2.0
"""`python -m vllm_ascend.batch_invariant COMMAND`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vllm_ascend.batch_invariant",
        description="Examine the batch-invariant mode.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    make = commands.add_parser(
        "make-model",
        help="write a random Qwen3 or Qwen3-MoE model directory that vllm loads offline",
    )
    make.add_argument(
        "name",
        help="qwen3, qwen3-moe, or a published model's layer shapes: "
        "qwen3-1.7b, qwen3-8b, qwen3-30b-a3b, qwen3-235b-a22b",
    )
    make.add_argument("directory", type=Path, help="a directory that does not exist or is empty")
    make.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    make.add_argument("--layers", type=int, help="number of layers (default: the shape's own)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    from .tiny_models import make_model

    try:
        made = make_model(options.name, options.directory, seed=options.seed, layers=options.layers)
    except (ValueError, OSError) as error:
        print(f"make-model: {error}", file=sys.stderr)
        return 3
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
