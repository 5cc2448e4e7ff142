# SPDX-License-Identifier: Apache-2.0
"""The command line of the doctor."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from vllm_ascend.batch_invariant.text_table import table
from vllm_ascend.soc import SocError, machine
from vllm_ascend.standard_output import written

from .operators import Tried, try_operators
from .rules import WRONG, Facts, findings, gather
from .system import System

HEALTHY, SICK, UNWRITTEN = 0, 1, 2
# Version of the JSON document; changes when a key changes its meaning.
SCHEMA = 1

DESCRIPTION = """\
What of batch-invariant vLLM is installed for this Python, what is wrong, and what to type.
Nothing is changed; the operators are tried once, in a process of their own.
"""
EPILOG = """\
exit codes: 0 nothing is wrong, 1 something is, 2 the answer could not be written

keys of --json:
  healthy    whether nothing is wrong
  installed  for each part its version and where it lies (null: not there), and details
  findings   level (wrong or note), what, type (what to type)

examples:
  ./scripts/doctor
  PYTHON=build/prefix/bin/python ./scripts/doctor --json
"""


def driver(system: System) -> str | None:
    """The version that npu-smi states of itself and the driver; None without one."""
    try:
        executable = machine.find_npu_smi(system.environ, system.root)
        text = machine.ask(executable, "info", environ=system.environ)
    except SocError:
        return None
    found = re.search(r"Version:\s*(\S+)", text)
    return found[1] if found else "unknown"


def installed(facts: Facts) -> dict[str, dict[str, Any]]:
    """What is there: name → version, path and details; a version of None where it is not."""
    system, library = facts.system, facts.tried.library
    first = next(iter(facts.places), None)
    info = first.version_info() if first else {}
    parts: dict[str, dict[str, Any]] = {
        "soc": {"version": facts.soc.name if facts.soc else None},
        "python": {"version": system.python, "path": system.executable},
        "stage 1, operator library": {
            "version": info.get("version") if first else None,
            "path": str(first.directory) if first else None,
            "found by": first.named_by if first else None,
            "soc": info.get("soc"),
            "abi": info.get("abi"),
            "loaded": library["path"] if library else None,
            "isa": library["isa"] if library else None,
            # Only this tree's operators state the version of their C interface.
            "provider": ("source" if "abi" in info else "not this tree") if first else None,
        },
    }
    for name, part, module in (
        ("stage 2, batch_invariant_ops", "batch_invariant_ops", "batch_invariant_ops"),
        ("stage 3, vllm-ascend", "vllm-ascend", "vllm_ascend"),
        ("torch", "torch", "torch"),
        ("vllm", "vllm", "vllm"),
        ("torch_npu", "torch_npu", "torch_npu"),
    ):
        place = facts.tried.modules.get(module)
        # One wheel may hold the operators too; they have no metadata of their own then.
        version = system.version(part) or ("part of vllm-ascend" if place else None)
        parts[name] = {"version": version, "path": str(place) if place else None}
    parts["cann"] = {
        "version": facts.cann.version if facts.cann else None,
        "path": facts.cann.path if facts.cann else None,
    }
    parts["npu driver"] = {"version": driver(system)}
    parts["C++ compiler"] = {"path": system.which("c++", "g++", "clang++")}
    parts["cmake"] = {"path": system.which("cmake")}
    return parts


def document(facts: Facts) -> dict[str, Any]:
    """The document of --json."""
    found = findings(facts)
    return {
        "schema": SCHEMA,
        "healthy": not any(finding.level == WRONG for finding in found),
        "installed": installed(facts),
        "findings": [{"level": each.level, "what": each.what, "type": each.type} for each in found],
    }


def as_text(told: dict[str, Any]) -> str:
    """The document for a person."""
    rows: list[Sequence[object]] = []
    for name, part in told["installed"].items():
        known = ("version", "path", "loaded")
        details = [f"{k} {v}" for k, v in part.items() if k not in known and v]
        shown = part.get("version") or ("" if part.get("path") else "-")
        rows.append((name, shown, "; ".join([part.get("path") or "", *details]).strip("; ")))
    lines = [table(("part", "version", "where"), rows), ""]
    for finding in told["findings"]:
        lines.append(f"{finding['level']}: {finding['what']}")
        if finding["type"]:
            lines.append(f"  type: {finding['type']}")
    wrong = sum(finding["level"] == WRONG for finding in told["findings"])
    things = "1 thing is wrong" if wrong == 1 else f"{wrong} things are wrong"
    lines.append(f"doctor: {things}" if wrong else "doctor: healthy")
    return "\n".join(lines)


def main(
    arguments: Sequence[str] | None = None,
    system: System | None = None,
    attempt: Callable[[System], Tried] = try_operators,
) -> int:
    """Examines `system`, by default this process's own; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="doctor",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    examined = System() if system is None else system
    told = document(gather(examined, attempt(examined)))

    def say() -> int:
        print(json.dumps(told, indent=2) if options.json else as_text(told))
        return HEALTHY if told["healthy"] else SICK

    return written("doctor", UNWRITTEN, say)
