# SPDX-License-Identifier: Apache-2.0
"""The command `python -m vllm_ascend.soc`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_ascend.standard_output import written

from . import cann, machine, npu_smi, soc_table

LARGEST = 1 << 24  # bytes of a text; npu-smi prints some thousand
EXIT_CODES = "Exit code 0; 1 with one line on standard error; 2 for wrong arguments."


def _shown(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def resolve(options: argparse.Namespace) -> None:
    """Prints a field or the whole of a row."""
    row = machine.default() if options.name is None else soc_table.resolve(options.name)
    if options.json:
        print(json.dumps(dataclasses.asdict(row), indent=2))
    else:
        print(_shown(getattr(row, options.field)))


def show_rows(options: argparse.Namespace) -> None:
    """Prints every row."""
    found = soc_table.rows()
    if options.json:
        print(json.dumps([dataclasses.asdict(row) for row in found], indent=2))
        return
    for row in found:
        print(f"{row.name:<14}{row.label:<6}{row.product:<24}{' '.join(row.targets)}".rstrip())


def identify(options: argparse.Namespace) -> None:
    """Prints the SoC of a text of npu-smi, or of this machine."""
    text = _given(options.file)
    found = machine.identify() if text is None else npu_smi.identify(text, soc_table.table())
    if options.json:
        names = dict.fromkeys(chip.name for chip in found.chips)
        answer = {"soc": found.soc.name, "label": found.soc.label, "product": found.soc.product}
        print(json.dumps({**answer, "chips": list(names), "count": len(found.chips)}, indent=2))
    else:
        print(found.soc.name)


def _given(file: str | None) -> str | None:
    """The text of a file or of standard input; None where neither is given.

    Raises:
        OSError, NpuSmiError: it cannot be read.
    """
    if file is not None and file != "-":
        with Path(file).open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8", "replace")
    if file is None:
        # A pipeline or a redirection; nothing else is waited for.
        try:
            mode = os.fstat(0).st_mode
        except OSError:
            return None
        if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
            return None
    # Not sys.stdin, which is None where a parent has closed it.
    try:
        with open(0, "rb", closefd=False) as standard_input:
            text = standard_input.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise npu_smi.NpuSmiError(
            f"standard input cannot be read: {error.strerror}; pipe the output of npu-smi info in,"
            " or name a file that has it"
        ) from error
    return text if text or file == "-" else None


def describe_cann(options: argparse.Namespace) -> None:
    """Prints the CANN of a path or of the environment."""
    row = None if options.soc is None else soc_table.resolve(options.soc)
    needs_one = options.path is not None or row is None or row.is_npu
    try:
        found = cann.find() if options.path is None else cann.read(Path(options.path))
        if row is not None:
            cann.require(found, row)
    except cann.CannError:
        if needs_one:
            raise
        # Of the same form, for whoever reads a field or JSON.
        found = cann.Cann(version="", arch="", path="")
    if not (found.path or options.json or options.field):
        print(f"{options.soc} needs no CANN")
    elif options.json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    elif options.field:
        print(getattr(found, options.field))
    else:
        for key, value in dataclasses.asdict(found).items():
            print(f"{key}={value}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vllm_ascend.soc",
        description="What is known about SoCs, about this machine's, and about its CANN.",
        epilog=EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, about: str, example: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=f"Example: {example}. {EXIT_CODES}",
        )
        added.add_argument("--json", action="store_true", help="print everything as JSON")
        return added

    added = command(
        "resolve",
        "print the row of the SoC table that a name stands for",
        "python -m vllm_ascend.soc resolve ascend910_9392 --field label",
    )
    added.add_argument(
        "name",
        nargs="?",
        help="any spelling; by default this machine's SoC, whatever SOC_VERSION says: that variable"
        " is for pip's build of the operators",
    )
    fields = [field.name for field in dataclasses.fields(soc_table.Soc)]
    added.add_argument("--field", choices=fields, default="name", help="what to print")
    added.set_defaults(run=resolve)

    added = command(
        "list", "print every row of the SoC table", "python -m vllm_ascend.soc list --json"
    )
    added.set_defaults(run=show_rows)

    added = command(
        "identify",
        "print the SoC of what npu-smi shows",
        "npu-smi info | python -m vllm_ascend.soc identify",
    )
    added.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="output of npu-smi info or npu-smi info -t board -i 0 -c 0; - is standard input;"
        " by default what is piped in, else npu-smi is run",
    )
    added.set_defaults(run=identify)

    added = command(
        "cann",
        "print the version, machine and path of a CANN",
        "python -m vllm_ascend.soc cann /usr/local/Ascend/cann --soc 910b",
    )
    added.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help=f"CANN's directory, {cann.INFO}, version.cfg or version.info; by default"
        f" {' or '.join(cann.VARIABLES)}, else where CANN's installer puts it",
    )
    added.add_argument("--field", choices=[field.name for field in dataclasses.fields(cann.Cann)])
    added.add_argument(
        "--soc",
        metavar="SOC",
        help="fail unless it does for this SoC, here; cpu needs none, and where there is none the"
        " fields are empty",
    )
    added.set_defaults(run=describe_cann)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 0, or 1 with one line on standard error."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except soc_table.SocError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename}: {error.strerror}" if error.filename else error, file=sys.stderr)
        return 1
    return written("soc", 1, lambda: 0)  # what is printed is small: the flush writes it
