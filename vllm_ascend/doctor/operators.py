# SPDX-License-Identifier: Apache-2.0
"""Tries the operators in a process of their own: torch may be missing, broken, or end it."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .system import System

# Prints one line of JSON for each thing found out, so that what is known survives a crash.
PROGRAM = """
import importlib.util
import json

def found(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return places[0] if places else None

names = ("vllm_ascend", "batch_invariant_ops", "torch", "torch_npu", "vllm")
print(json.dumps({"modules": {name: found(name) for name in names}}), flush=True)
if found("torch") and found("batch_invariant_ops"):
    try:
        import torch
        import batch_invariant_ops
        one = torch.ones(1, 1)
        product = torch.ops.batch_invariant_ops.npu_mm_batch_invariant(one, one)
        assert product.item() == 1, f"1 * 1 is {product.item()}"
        path, version, isa, abi = batch_invariant_ops.library()
        library = {"path": str(path), "version": version, "isa": isa, "abi": abi}
        print(json.dumps({"library": library}), flush=True)
    except BaseException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        line = lines[0] if lines else type(error).__name__
        print(json.dumps({"error": line}), flush=True)
"""


@dataclass(frozen=True)
class Tried:
    """What came of it."""

    modules: dict[str, Path] = field(default_factory=dict)
    """Name → directory of the packages that Python finds."""
    library: dict[str, Any] | None = None
    """path, version, isa, abi of the library that computed; None where none did."""
    error: str | None = None
    """One line; None where nothing was tried or all went well."""


def try_operators(system: System) -> Tried:
    """Runs PROGRAM with the system's Python and environment."""
    try:
        done = subprocess.run(
            [system.executable, "-P", "-c", PROGRAM],
            env=dict(system.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        return Tried(error=f"{system.executable} does not run: {error.strerror}")
    told: dict[str, Any] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        try:
            told |= json.loads(line)
        except (ValueError, TypeError):  # printed by something that was imported
            continue
    modules = {name: Path(place) for name, place in told.get("modules", {}).items() if place}
    failure: str | None = told.get("error")
    if done.returncode and failure is None:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        how = (
            f"was killed by {signal.Signals(-done.returncode).name}"
            if done.returncode < 0
            else f"ended with exit code {done.returncode}"
        )
        failure = f"a Python that imports torch and batch_invariant_ops {how}: {''.join(last)}"
    return Tried(modules, told.get("library"), failure)
