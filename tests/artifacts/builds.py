# SPDX-License-Identifier: Apache-2.0
"""What this tree builds, each under given circumstances and at most once."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path

from provision import conda_index, recipes
from provision.progress import Progress
from provision.quickstart_stages import make_standin
from provision.state import State, exclusive, state_folder

from .circumstances import ROOT, Circumstances

SCRIPT = Path("csrc/build_batch_invariant_ops.sh")


@functools.cache
def run_package(where: Circumstances) -> Path:
    """Stage 1, by the script."""
    output = where.directory / "run package"
    script = where.tree() / SCRIPT
    where.made(
        ["bash", script, "cpu", "--run-package-only", "-j", str(where.jobs), "--output", output],
        PYTHON=sys.executable,
    )
    return next(output.glob("*.run"))


@functools.cache
def operators(where: Circumstances) -> Path:
    """Stage 2, by pip."""
    return _wheel(where, "csrc/torch_ops_extension")


@functools.cache
def plugin(where: Circumstances) -> Path:
    """Stage 3, by pip."""
    return _wheel(where, ".")


def _wheel(where: Circumstances, source: str) -> Path:
    output = where.directory / f"wheel of {Path(source).name or 'the tree'}"
    where.made(
        [
            *(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-index"),
            *("--no-build-isolation", "--no-deps", "-w", output, where.tree() / source),
        ],
        MAX_JOBS=str(where.jobs),
    )
    return next(output.glob("*.whl"))


@functools.cache
def third_party() -> State:
    """The stand-in channel, in the folder that ./scripts/quickstart uses too."""
    state = state_folder(ROOT, None, dict(os.environ))
    progress = Progress()
    with exclusive(state.lock, lambda: progress("channel", f"waiting for {state.root}")):
        make_standin(state, dict(os.environ), progress)
    return state


@functools.cache
def conda_package(where: Circumstances, name: str) -> Path:
    """A recipe's package for soc=cpu, in a channel with those it needs."""
    for need in recipes.NEEDS[name]:
        conda_package(where, need)
    state = third_party()
    stages = where.directory / "channel"
    conda_index.write(stages)
    output = where.directory / "recipe builds" / name
    command: list[str | Path] = [
        *(sys.executable, "-m", "provision.recipes", where.tree(), name, "cpu", output),
        *(where.directory / f"{name}.log", stages.as_uri(), state.standin.as_uri()),
    ]
    more = {
        "PYTHONPATH": str(where.tree() / "tools"),
        "RATTLER_CACHE_DIR": str(where.directory / "cache"),
        recipes.DOWNLOADS: str(state.wheels),
    }
    where.made(command, **more)
    [package] = output.glob("*/*.conda")
    target = stages / package.parent.name / package.name
    target.parent.mkdir(parents=True, exist_ok=True)
    package.replace(target)
    shutil.rmtree(output)
    conda_index.write(stages)
    return target
