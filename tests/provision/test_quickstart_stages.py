# SPDX-License-Identifier: Apache-2.0
"""The second half of quickstart, interrupted, gone on with, and run again with nothing to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from provision.first_half import INTERRUPTED
from provision.quickstart import Options

# The channel, the recipes, and a prefix of 3 GB.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# The fixture end_when of conftest.py.
EndWhen = Callable[[subprocess.Popen[str], int, Callable[[], bool]], str]
CHECK = "--prompts 3 --batches 1,3 --threads 1 --max-tokens 8"


def options(folder: Path) -> Options:
    return Options(
        state=str(folder / "state"),
        prefix=str(folder / "prefix"),
        json=str(folder / "result.json"),
        channel="standin",
        check=CHECK.split(),
        started=time.time(),
    )


def start(asked: Options) -> subprocess.Popen[str]:
    """As the first half starts it, but in the environment of the tests, which has the libraries."""
    command = [sys.executable, "-P", "-B", "-m", "provision.quickstart_stages"]
    return subprocess.Popen(
        [*command, json.dumps(asdict(asked))],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(folder: Path) -> tuple[str, dict[str, Any]]:
    """What a run that goes well says, and its result."""
    run = start(options(folder))
    said, errors = run.communicate()
    assert run.returncode == 0, said + errors
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert result["comparisons"] > 0 and result["control_differs"]
    assert result["identical"] == result["comparisons"]
    return said + errors, result


def test_an_interrupted_run_goes_on_and_the_next_has_nothing_to_do(
    tmp_path: Path, end_when: EndWhen
) -> None:
    run = start(options(tmp_path))
    built = tmp_path / "state" / "channel" / "stages"
    errors = end_when(run, signal.SIGINT, lambda: any(built.glob("*/ascend-soc-*.conda")))
    assert run.returncode == INTERRUPTED
    assert errors.splitlines()[-1] == "quickstart: interrupted; run it again to continue"
    assert not (tmp_path / "prefix").exists()

    said, result = finished(tmp_path)
    assert "packages installed into" in said
    installed = {package["name"]: package for package in result["packages"]}
    order = ["ascendc-batch-invariant-ops", "batch-invariant-ops", "vllm-ascend"]
    assert all(installed[name]["build"].startswith("cpu_") for name in order)

    said, again = finished(tmp_path)
    assert "packages unchanged in" in said
    assert "passed in this prefix before" in said
    assert again["packages"] == result["packages"]

    # A check that cannot start is not one that found a difference.
    wrong = options(tmp_path)
    wrong.check.append("--no-such-option")
    run = start(wrong)
    said, errors = run.communicate()
    assert run.returncode == 3
    assert "quickstart: check could not be run: 0 of 0 comparisons" in said
