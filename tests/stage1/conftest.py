# SPDX-License-Identifier: Apache-2.0
"""Builds of stage 1, each made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cmake import build


@pytest.fixture(scope="session")
def native_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a warning."""
    directory = tmp_path_factory.mktemp("native")
    build(directory, "-DCMAKE_CXX_COMPILER=g++", "-DCMAKE_CXX_FLAGS=-Werror")
    return directory


@pytest.fixture(scope="session")
def sanitized_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # -O1: at -O3 the sanitized kernels take many minutes to compile.
    directory = tmp_path_factory.mktemp("sanitized")
    build(
        directory,
        "-DCMAKE_CXX_COMPILER=g++",
        "-DBI_SANITIZE=address,undefined",
        "-DCMAKE_BUILD_TYPE=Sanitized",
        "-DCMAKE_CXX_FLAGS=-O1",
    )
    return directory
