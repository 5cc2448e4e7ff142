# SPDX-License-Identifier: Apache-2.0
"""`python -m vllm_ascend.batch_invariant COMMAND`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from vllm_ascend.standard_output import written

# argparse's own 2 means `inconclusive` here.
USAGE_ERROR = 3


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (--help explains)\n")


def _named(text: str) -> Path:
    if not text:  # which Path takes for the current directory
        raise argparse.ArgumentTypeError("expected a directory, found ''")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    from .check import command as check
    from .report import command as report

    parser = _Parser(
        prog="python -m vllm_ascend.batch_invariant",
        description="Examine the batch-invariant mode. Each command has its own --help.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check.add_arguments(
        commands.add_parser("check", help="compare every prompt alone and in batches, bit for bit")
    )
    report.add_arguments(
        commands.add_parser("report", help="list what is overridden by what, and what is not")
    )
    make = commands.add_parser(
        "make-model",
        help="write the directory of a model with random weights that vllm loads offline",
    )
    make.add_argument(
        "name",
        help="tiny: qwen3, qwen3-moe, llama, qwen2; or a published model's layer shapes: "
        "qwen3-1.7b, qwen3-8b, qwen3-30b-a3b, qwen3-235b-a22b",
    )
    make.add_argument("directory", type=_named, help="a directory that does not exist or is empty")
    make.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    make.add_argument("--layers", type=int, help="number of layers (default: the shape's own)")
    make.add_argument(
        "--shard-bytes",
        type=int,
        metavar="N",
        help="no file of weights larger than this, but for a single tensor (default: 2 GiB)",
    )
    return parser


def _make_model(options: argparse.Namespace) -> int:
    from safetensors import SafetensorError

    from .termination import terminable
    from .tiny_models import SHARD_BYTES, make_model

    try:
        with terminable():
            made = make_model(
                options.name,
                options.directory,
                seed=options.seed,
                layers=options.layers,
                shard_bytes=SHARD_BYTES if options.shard_bytes is None else options.shard_bytes,
            )
    except (ValueError, OSError, SafetensorError) as error:
        print(f"make-model: {error}", file=sys.stderr)
        return USAGE_ERROR
    print(made)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        # torch's libraries would end the process, with a code that means a result.
        Path.cwd()
    except FileNotFoundError:
        print("the current directory is gone: change into another", file=sys.stderr)
        return USAGE_ERROR
    try:
        options = _parser().parse_args(arguments)
        return written(options.command, USAGE_ERROR, lambda: _run(options))
    except ModuleNotFoundError as error:
        # As where another Python than the installation's is on the path.
        print(
            f"{sys.executable} has no {error.name}: activate the environment that vllm-ascend is "
            "installed in (python -m vllm_ascend.doctor says what is missing)",
            file=sys.stderr,
        )
        return USAGE_ERROR


def _run(options: argparse.Namespace) -> int:
    if options.command == "check":
        from .check import command as check

        return check.run(options)
    if options.command == "report":
        from .report import command as report

        return report.run(options)
    return _make_model(options)


if __name__ == "__main__":
    sys.exit(main())
