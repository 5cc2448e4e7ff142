# SPDX-License-Identifier: Apache-2.0
"""The solver chooses the machine's SoC, cpu where there is none, and never a wrong one."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest
from provision import conda_index, recipes
from provision.conda_package import Metadata
from provision.progress import Progress
from provision.recipes import render
from provision.standin import Planned, assemble
from rattler import (
    GenericVirtualPackage,
    PackageName,
    RepoDataRecord,
    Version,
    VirtualPackage,
    solve,
)
from rattler.exceptions import SolverError
from rattler.package import BuildString
from rattler_build import ToolConfiguration

ROOT = Path(__file__).parents[2]
SOCS = list(tomllib.loads((ROOT / "soc.toml").read_text())["soc"])
NPUS = [soc for soc in SOCS if soc != "cpu"]


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every variant of the mutex, and a package with one build per SoC, as stage 1 has."""
    place = tmp_path_factory.mktemp("channels")
    mutex, operators = place / "mutex", place / "operators"
    for variant in render(ROOT, "ascend-soc", "linux-64"):
        variant.run_build(
            tool_config=ToolConfiguration(test_strategy="skip"),
            output_dir=mutex,
            channels=[],
            no_build_id=True,
            package_format=recipes.COMPRESSION,
        )
    conda_index.write(mutex)
    for soc in SOCS:
        depends = (f"ascend-soc * {soc}",)
        metadata = Metadata(f"demo-{soc}", "1.0", f"{soc}_0", "noarch", depends, noarch="generic")
        assemble(operators / soc, [Planned(metadata, tuple)], Progress())
    # One package name with several builds: the channels are one after another.
    return [mutex.as_uri(), *((operators / soc).as_uri() for soc in SOCS)]


def chosen(channels: list[str], specs: list[str], npu: str | None) -> dict[str, str]:
    virtual: list[VirtualPackage | GenericVirtualPackage] = [*VirtualPackage.detect()]
    if npu is not None:
        virtual.append(
            GenericVirtualPackage(PackageName("__ascend"), Version("9.1"), BuildString(npu))
        )
    records: list[RepoDataRecord] = asyncio.run(solve(channels, specs, virtual_packages=virtual))
    return {record.name.normalized: str(record.build) for record in records}


def test_without_an_npu_it_is_cpu(channels: list[str]) -> None:
    assert chosen(channels, ["ascend-soc"], None) == {"ascend-soc": "cpu"}


@pytest.mark.parametrize("soc", NPUS)
def test_the_machines_npu_is_chosen(channels: list[str], soc: str) -> None:
    assert chosen(channels, ["ascend-soc"], soc) == {"ascend-soc": soc}


@pytest.mark.parametrize("soc", SOCS)
def test_on_a_machine_without_one_any_soc_can_be_asked_for(channels: list[str], soc: str) -> None:
    assert chosen(channels, [f"ascend-soc * {soc}"], None) == {"ascend-soc": soc}
    assert chosen(channels, [f"demo-{soc}"], None)["ascend-soc"] == soc


@pytest.mark.parametrize("soc", [s for s in SOCS if s != "ascend910b"])
def test_another_soc_than_the_machines_is_an_error(channels: list[str], soc: str) -> None:
    with pytest.raises(SolverError, match="__ascend"):
        chosen(channels, [f"ascend-soc * {soc}"], "ascend910b")


def test_an_npu_that_is_not_supported_is_an_error(channels: list[str]) -> None:
    with pytest.raises(SolverError, match="__ascend"):
        chosen(channels, ["ascend-soc"], "ascend310p")


def test_operators_for_two_socs_do_not_share_a_prefix(channels: list[str]) -> None:
    with pytest.raises(SolverError, match="ascend-soc"):
        chosen(channels, ["demo-ascend910b", "demo-ascend950"], None)
