# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the plugin's tests: a Python of its own for what patches a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_ascend.batch_invariant.tiny_models import make_model

RunPython = Callable[..., subprocess.CompletedProcess[str]]

# Variables that decide between the mode and stock, and between platforms: each test sets its own.
_DECIDING = (
    "VLLM_BATCH_INVARIANT",
    "VLLM_BATCH_INVARIANT_DISABLE",
    "VLLM_PLUGINS",
    "VLLM_TARGET_DEVICE",
    "VLLM_USE_V2_MODEL_RUNNER",
)


def engine_environment(**variables: str) -> dict[str, str]:
    """The caller's environment without the deciding variables, offline, with `variables`."""
    environment = {name: value for name, value in os.environ.items() if name not in _DECIDING}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return environment | variables


@pytest.fixture
def run_python() -> RunPython:
    """Runs a script in a new process; `check=False` lets it fail."""

    def run(
        script: str, *arguments: str, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *arguments],
            env=engine_environment(**variables),
            capture_output=True,
            text=True,
            timeout=600,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def dense_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3."""
    directory: Path = tmp_path_factory.mktemp("models") / "qwen3"
    make_model("qwen3", directory)
    return directory


@pytest.fixture(scope="session")
def moe_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3-MoE."""
    directory: Path = tmp_path_factory.mktemp("models") / "qwen3-moe"
    make_model("qwen3-moe", directory)
    return directory


@pytest.fixture(scope="session")
def guide_folder(dense_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the guide's model name leads to the tiny model: `Qwen/Qwen3-8B`."""
    folder: Path = tmp_path_factory.mktemp("guide")
    (folder / "Qwen").mkdir()
    (folder / "Qwen/Qwen3-8B").symlink_to(dense_model)
    return folder
