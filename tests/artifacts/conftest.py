# SPDX-License-Identifier: Apache-2.0
"""Two ways to run a build, as different as they can be made without another machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .circumstances import Circumstances, elsewhere, here


@pytest.fixture(scope="session")
def other_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("clock") / "other_clock.so"
    source = Path(__file__).with_name("other_clock.cc")
    command = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, str(source), "-o", str(library), "-ldl"], check=True)
    return library


@pytest.fixture(scope="session")
def both(
    tmp_path_factory: pytest.TempPathFactory, other_clock: Path
) -> tuple[Circumstances, Circumstances]:
    """Here and elsewhere; skipped, by name, where no namespace can be made."""
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True, text=True
    )
    if tried.returncode != 0:
        pytest.skip(f"skipped: no namespace can be made here: {tried.stderr.strip()}")
    base = tmp_path_factory.mktemp("artifacts")
    made = here(base / "here"), elsewhere(base / "Anderswo, 别处", other_clock)
    for where in made:  # before minutes pass, in which somebody may change the sources
        where.tree()
    return made


@pytest.fixture(scope="session")
def own(both: tuple[Circumstances, Circumstances]) -> Circumstances:
    """Here."""
    return both[0]
