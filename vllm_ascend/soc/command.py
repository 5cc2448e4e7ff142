# SPDX-License-Identifier: Apache-2.0
"""The command `python -m vllm_ascend.soc`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from . import machine, soc_table


def _shown(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 0, or 1 with one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m vllm_ascend.soc", description="Look a SoC up in the SoC table."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fields = [field.name for field in dataclasses.fields(soc_table.Soc)]
    resolving = commands.add_parser("resolve", help="print the row that a name stands for")
    resolving.add_argument("name", nargs="?", help="any spelling; by default this machine's SoC")
    resolving.add_argument("--field", choices=fields, default="name", help="what to print")
    resolving.add_argument("--json", action="store_true", help="print the whole row as JSON")
    listing = commands.add_parser("list", help="print every row")
    listing.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args(arguments)
    try:
        if options.command == "list":
            found = soc_table.rows()
        else:
            found = (
                machine.default() if options.name is None else soc_table.resolve(options.name),
            )
    except (soc_table.SocError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        listed = [dataclasses.asdict(row) for row in found]
        print(json.dumps(listed if options.command == "list" else listed[0], indent=2))
    elif options.command == "list":
        for row in found:
            print(f"{row.name:<14}{row.label:<6}{row.product:<24}{' '.join(row.targets)}".rstrip())
    else:
        print(_shown(getattr(found[0], options.field)))
    return 0
