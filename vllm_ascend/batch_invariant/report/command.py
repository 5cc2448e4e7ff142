# SPDX-License-Identifier: Apache-2.0
"""The command `report`: traces a real forward pass and lists how each operator is covered."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..check.configuration import (
    Configuration,
    ConfigurationError,
    check_subject,
    distinct,
    read_model,
    resolve_dtype,
)
from ..check.engine_process import run_program
from ..check.workload import make_workload
from ..progress import Progress
from ..termination import terminable
from ..text_table import table
from .classify import CLASSES, UNCOVERED

COVERED, NOT_COVERED, ERROR = 0, 1, 3
# Version of the JSON document; changes when a key changes its meaning.
SCHEMA = 1
# Traced where no model is given: between them they reach every operator of Qwen3.
TINY_MODELS = ("qwen3", "qwen3-moe")
PROGRAM = "vllm_ascend.batch_invariant.report.engine"
# The dispatcher's key of the reference device.
DEVICE_KEY = "CPU"

DESCRIPTION = """\
What does the mode override, by what, and what does it leave alone?

A model runs in the real vLLM with VLLM_BATCH_INVARIANT=1 and every operator call is traced: of
PyTorch, of vLLM's C++ extension (`_C`) and ours, also inside overrides. Each is ours, overridden,
independent of the batch by construction or by test (with the reason), or uncovered.
"""

EPILOG = """\
exit codes:
  0  covered: no operator was seen that may depend on the batch
  1  uncovered: at least one was seen, and is listed
  3  error: the model could not be run; one line says why

keys of --json (one document on standard output):
  covered      whether nothing is uncovered
  library      the operator library of stage 1: path, version, isa, abi
  overrides    name, target, by, reason, calls (of the target or of what takes its place)
  operators    operator, class, by, reason, calls, phases, models
  classes      what each class means
  uncovered    operators that may depend on the batch
  compiled     functions that torch.compile made into code that no trace sees: also uncovered
  models, dtype, versions

example:
  python -m vllm_ascend.batch_invariant report
  python -m vllm_ascend.batch_invariant report --json --model /models/Qwen3-8B
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--model",
        action="append",
        metavar="DIR",
        help="a model's directory, or its name in the Hugging Face cache "
        f"(default: random models, {' and '.join(TINY_MODELS)})",
    )
    parser.add_argument("--dtype", default="auto", metavar="D", help="(default: the model's)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    # For the report's own tests: with an override left out it must find something.
    parser.add_argument("--subject", default="mode", help=argparse.SUPPRESS)


def merge(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One document from those of several models (name → what `report.engine` returned)."""
    first = next(iter(documents.values()))
    order = list(CLASSES)
    operators: dict[tuple[str, ...], dict[str, Any]] = {}
    called: dict[str, int] = {}
    compiled: set[str] = set()
    for model, document in documents.items():
        compiled.update(document["compiled"])
        for operator, number in document["called"].items():
            called[operator] = called.get(operator, 0) + number
        for finding in document["findings"]:
            key = (finding["operator"], finding["class"], *finding["by"], finding["reason"])
            entry = operators.setdefault(key, {**finding, "calls": 0, "phases": {}, "models": []})
            entry["calls"] += finding["calls"]
            entry["models"].append(model)
            for phase, number in finding["phases"].items():
                entry["phases"][phase] = entry["phases"].get(phase, 0) + number
    rows = sorted(operators.values(), key=lambda e: (order.index(e["class"]), e["operator"]))
    overrides = []
    for override in first["overrides"]:
        names = {override["target"], *override["by"]}
        names |= {f"batch_invariant_ops::{by}" for by in override["by"]}
        own = called.get(override["target"])
        calls = sum(called.get(name, 0) for name in names) if own is None else own
        overrides.append({**override, "calls": calls})
    uncovered = sorted({row["operator"] for row in rows if row["class"] == UNCOVERED})
    return {
        "schema": SCHEMA,
        "covered": not uncovered and not compiled,
        "models": list(documents),
        "dtype": first["dtype"],
        "library": first["operators"],
        "overrides": overrides,
        "operators": rows,
        "classes": CLASSES,
        "uncovered": uncovered,
        "compiled": sorted(compiled),
        "versions": first["versions"],
    }


def as_text(document: Mapping[str, Any]) -> str:
    """The tables."""
    library = document["library"]
    versions = ", ".join(f"{k} {v or 'not installed'}" for k, v in document["versions"].items())
    loaded = (
        "operator library: none is loaded"
        if library is None
        else f"operator library {library['version']} (isa {library['isa']}, abi {library['abi']}): "
        f"{library['path']}"
    )
    overrides: list[Sequence[object]] = [
        (o["name"], ", ".join(o["by"]), o["calls"], o["reason"]) for o in document["overrides"]
    ]
    operators: list[Sequence[object]] = [
        (
            row["class"],
            row["operator"],
            row["calls"],
            ",".join(sorted(row["phases"])),
            # What holds for the whole class is said once, below.
            ", ".join(row["by"])
            or ("" if row["reason"] == CLASSES[row["class"]] else row["reason"]),
        )
        for row in document["operators"]
    ]
    seen = {row["class"] for row in document["operators"]}
    classes: list[Sequence[object]] = [(k, why) for k, why in CLASSES.items() if k in seen]
    parts = [
        f"models: {', '.join(document['models'])}",
        loaded,
        f"versions: {versions}",
        "",
        "Overrides",
        table(("override", "by", "calls", "because"), overrides),
        "",
        "Operators seen",
        table(("class", "operator", "calls", "phases", "by, or why it is independent"), operators),
        "",
        "Classes",
        table(("class", "meaning"), classes),
        "",
        *(f"report: uncovered: {name}" for name in document["uncovered"]),
        *(f"report: compiled, not traced: {name}" for name in document["compiled"]),
        f"report: {'covered' if document['covered'] else 'NOT covered'}: "
        f"{len(document['operators'])} operators seen, {len(document['overrides'])} overrides, "
        f"{len(document['uncovered']) + len(document['compiled'])} uncovered",
    ]
    return "\n".join(parts)


def _trace(model: str, options: argparse.Namespace, progress: Progress) -> Mapping[str, Any]:
    facts = read_model(model)
    dtype = resolve_dtype(options.dtype, facts)
    configuration = Configuration(model, dtype, 1, options.subject)
    workload = make_workload(
        prompts=3,
        batches=(6,),
        max_tokens=6,
        vocab_size=facts.vocab_size,
        max_positions=facts.max_positions,
        stop_words=facts.has_tokenizer,
    )
    job = {
        "workload": workload.as_json(),
        "cache_bytes_per_token": facts.cache_bytes_per_token,
        "device_key": DEVICE_KEY,
    }
    progress.show(f"report: {configuration.label()}: starting", now=True)
    began = time.monotonic()

    def report(phase: str, done: int) -> None:
        starting = f"starting, {time.monotonic() - began:.0f} s"
        what = starting if phase == "start" else f"{phase}, {done} requests"
        progress.show(f"report: {configuration.label()}: {what}")

    document = run_program(PROGRAM, configuration, job, report)
    return {**document, "dtype": dtype}


def run(options: argparse.Namespace) -> int:
    """Traces, prints, returns the exit code."""
    progress = Progress(sys.stderr)
    try:
        check_subject(options.subject)
        with (
            terminable(),
            tempfile.TemporaryDirectory(prefix="vllm-ascend-report-") as scratch,
        ):
            models = {model: model for model in distinct(options.model or ())}
            if not models:
                from ..tiny_models import make_model

                models = {n: str(make_model(n, Path(scratch, n))) for n in TINY_MODELS}
            traced = {n: _trace(model, options, progress) for n, model in models.items()}
    except KeyboardInterrupt:
        progress.clear()
        print("report: interrupted", file=sys.stderr)
        return 130
    except (ConfigurationError, OSError) as error:
        progress.clear()
        print(f"report: {error}", file=sys.stderr)
        return ERROR
    progress.clear()
    document = merge(traced)
    print(json.dumps(document, indent=2) if options.json else as_text(document))
    return COVERED if document["covered"] else NOT_COVERED
