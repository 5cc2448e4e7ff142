# SPDX-License-Identifier: Apache-2.0
"""A real conda, its solver and our plugin: the machine's SoC is chosen, and never a wrong one.

The channel holds an index entry of every variant of our recipes, and no package.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from provision.standin import native_subdir

from tests.recipes.conftest import MAIN, PLATFORMS, Conda, clone
from tests.soc.npu_smi_text import packed_table
from vllm_ascend import soc
from vllm_ascend.soc import machine

pytestmark = pytest.mark.slow

NPUS = [row.name for row in soc.rows() if row.is_npu]
STAGES = {"ascend-soc", "ascendc-batch-invariant-ops", "batch-invariant-ops", "vllm-ascend"}
OVERRIDE = "CONDA_OVERRIDE_ASCEND"
FAULT = "dcmi module initialize failed. ret is -8005\n"

Solve = Callable[..., dict[str, str]]
Refused = Callable[..., str]


def create(channel: str, prefix: Path, *specs: str) -> list[str | Path]:
    """The arguments of a `conda create` that says what it would do."""
    options = ["--dry-run", "--json", "--override-channels", "--channel", channel]
    return ["create", "--prefix", prefix, *options, *specs]


@pytest.fixture
def solve(conda: Conda, channel: str, plugin: Path, tmp_path: Path) -> Solve:
    """Build strings of what would be installed, by package; on this platform or another."""

    def run(*specs: str, npu: str = "", **environ: str) -> dict[str, str]:
        arguments = create(channel, tmp_path / "prefix", *specs)
        said = conda(*arguments, plugin=plugin, environ={OVERRIDE: npu, **environ})
        answer: dict[str, Any] = json.loads(said[said.index("{") :])
        return {package["name"]: package["build_string"] for package in answer["actions"]["LINK"]}

    return run


@pytest.fixture
def refused(conda: Conda, channel: str, plugin: Path, tmp_path: Path) -> Refused:
    """What is said where nothing would be installed."""

    def run(*specs: str, npu: str = "") -> str:
        arguments = create(channel, tmp_path / "prefix", *specs)
        return conda(*arguments, plugin=plugin, fails=True, environ={OVERRIDE: npu})

    return run


def is_all_of(builds: dict[str, str], name: str) -> bool:
    """Whether the three stages, the choice and vLLM are those of one SoC."""
    device = "cpu" if name == "cpu" else "empty"
    return all(re.fullmatch(rf"{name}(_(official|source|py).*)?", builds[p]) for p in STAGES) and (
        builds["vllm"].startswith(device) and ("torch-npu" in builds) == (name != "cpu")
    )


def test_without_an_npu_it_is_cpu(solve: Solve) -> None:
    assert is_all_of(solve("vllm-ascend"), "cpu")


@pytest.mark.parametrize("name", NPUS)
def test_the_machines_npu_is_chosen_with_huaweis_operators(solve: Solve, name: str) -> None:
    builds = solve("vllm-ascend", npu=name)
    assert is_all_of(builds, name)
    assert not is_all_of(builds, "cpu")  # what is_all_of can say no to
    for stage in ("ascendc-batch-invariant-ops", "batch-invariant-ops"):
        assert builds[stage].startswith(f"{name}_official_")
    row = soc.resolve(name)
    assert f"cann-{row.label.lower()}-ops" in builds


@pytest.mark.parametrize("name", ["", *NPUS])
def test_on_the_other_platform_the_choice_is_the_same(solve: Solve, name: str) -> None:
    [other] = {*PLATFORMS} - {native_subdir()}
    builds = solve("vllm-ascend", npu=name, CONDA_SUBDIR=other)
    assert is_all_of(builds, name or "cpu")
    # Packages of that platform: their hash is another.
    here = solve("vllm-ascend", npu=name)
    assert builds["vllm"] != here["vllm"]


def test_this_trees_operators_are_a_spec_away(solve: Solve) -> None:
    builds = solve("vllm-ascend", "ascendc-batch-invariant-ops * *_source_*", npu="ascend950")
    assert is_all_of(builds, "ascend950")
    assert builds["batch-invariant-ops"].startswith("ascend950_source_")


@pytest.mark.parametrize("name", NPUS)
def test_on_a_machine_without_one_any_soc_can_be_asked_for(solve: Solve, name: str) -> None:
    assert is_all_of(solve("vllm-ascend", f"ascend-soc * {name}"), name)


@pytest.mark.parametrize("name", ["cpu", "ascend950"])
def test_another_soc_than_the_machines_is_refused_by_name(refused: Refused, name: str) -> None:
    said = refused("vllm-ascend", f"ascend-soc * {name}", npu="ascend910b")
    assert "__ascend" in said and "ascend-soc" in said


@pytest.mark.parametrize("build", ["unsupported", "unidentified", "h100"])
def test_an_npu_that_no_package_is_for_is_refused_by_name(refused: Refused, build: str) -> None:
    said = refused("vllm-ascend", npu=build)
    assert "__ascend" in said
    warned = f"unknown SoC '{build}'; expected one of ascend910b" in said
    assert warned == (build == "h100")


def test_two_socs_never_share_a_prefix(refused: Refused) -> None:
    said = refused("vllm-ascend * ascend950_*", "ascendc-batch-invariant-ops * ascend910b_*")
    assert "ascend-soc" in said


def virtual_package(conda: Conda, plugin: Path, **environ: str) -> str:
    """What `conda info` says of `__ascend`; "" where it says nothing."""
    found = re.search(r"__ascend=(\S+)", conda("info", plugin=plugin, environ=environ))
    return found[1] if found else ""


@pytest.mark.parametrize("spelling", ["910b", "ascend910b1", "ASCEND910B"])
def test_the_override_takes_any_spelling_of_a_soc(
    conda: Conda, plugin: Path, spelling: str
) -> None:
    assert virtual_package(conda, plugin, CONDA_OVERRIDE_ASCEND=spelling) == "0=ascend910b"


def test_there_is_none_without_an_npu_and_where_the_override_says_so(
    conda: Conda, plugin: Path
) -> None:
    if not machine.devices():
        assert virtual_package(conda, plugin) == ""
    for none in ("", "cpu"):
        assert virtual_package(conda, plugin, CONDA_OVERRIDE_ASCEND=none) == ""


def test_the_version_is_that_of_cann(conda: Conda, plugin: Path, tmp_path: Path) -> None:
    for version, shown in (("9.1.0-beta.1", "9.1.0.beta.1"), ("8.2.RC1", "8.2.rc1")):
        (tmp_path / "version.info").write_text(f"version={version}\n")
        environ = {"CONDA_OVERRIDE_ASCEND": "950", "ASCEND_HOME_PATH": str(tmp_path)}
        assert virtual_package(conda, plugin, **environ) == f"{shown}=ascend950"


# An NPU's device file is the one thing of a machine that a test cannot make.
A_DEVICE = """
import pathlib
from conda_ascend.soc import machine
machine.devices = lambda root=None: [pathlib.Path("/dev/davinci0")]
"""


@pytest.mark.parametrize(
    ("listing", "found", "said"),
    [
        (packed_table(["910B4"] * 8), "0=ascend910b", ""),
        (packed_table(["Ascend910"] * 8, dies=2), "0=ascend910_93", ""),
        (packed_table(["Ascend950PR"]), "0=ascend950", ""),
        (packed_table(["310P3"], hbm=None), "0=unsupported", "'310P3' is not supported"),
        (FAULT, "0=unidentified", "driver answers -8005"),
    ],
)
def test_the_machines_npu_is_identified(
    conda: Conda, plugin: Path, tmp_path: Path, listing: str, found: str, said: str
) -> None:
    python = clone() or pytest.skip("no conda: a clone is needed, to say there is a device file")
    (tmp_path / "listing").write_text(listing)
    (tmp_path / "npu-smi").write_text(f'#!/bin/sh\nexec cat "{tmp_path}/listing"\n')
    (tmp_path / "npu-smi").chmod(0o755)
    device = Conda((python, "-c", MAIN.format(before=A_DEVICE)), conda.environ)
    path = f"{tmp_path}:{conda.environ['PATH']}"
    shown = device("info", plugin=plugin, environ={"PATH": path})
    assert f"__ascend={found}\n" in shown
    # Once, however often conda asks.
    assert shown.count(f"{OVERRIDE}=<SoC> overrides it") == bool(said)
    assert said in shown


def test_the_plugin_imports_nothing_but_conda_and_python(plugin: Path) -> None:
    for path in plugin.rglob("*.py"):
        names = re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE)
        known = {*sys.stdlib_module_names, "conda", ""}
        assert {name.split(".")[0] for name in names} <= known, path
