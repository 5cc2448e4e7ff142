# SPDX-License-Identifier: Apache-2.0
"""The same sources give the same bytes, whoever builds them, and nothing is fetched meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from provision.recipes import STAGES
from provision.state import file_sha256

from .builds import conda_package, operators, plugin, run_package
from .circumstances import Circumstances

Both = tuple[Circumstances, Circumstances]


def same_bytes(made: list[Path]) -> None:
    assert made[0].name == made[1].name
    assert made[0] != made[1]
    assert file_sha256(made[0]) == file_sha256(made[1])


@pytest.mark.slow
@pytest.mark.parametrize("build", [run_package, operators, plugin], ids=lambda made: made.__name__)
def test_two_builds_are_the_same_to_the_byte(
    both: Both, build: Callable[[Circumstances], Path]
) -> None:
    same_bytes([build(where) for where in both])


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_two_builds_of_a_recipe_are_the_same_to_the_byte(both: Both, name: str) -> None:
    same_bytes([conda_package(where, name) for where in both])
