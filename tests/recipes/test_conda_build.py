# SPDX-License-Identifier: Apache-2.0
"""A real conda-build reads the recipes: the SoC's choice, and stage 1 from Huawei's run package."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from provision import conda_archive, interpreter, toolchain
from provision.conda_package import Metadata
from provision.official_artifact import SUMS, read_lock
from provision.progress import Progress
from provision.standin import Planned, assemble, plan_machine

from csrc.run_package import build as run_package
from tests.recipes.conftest import THIRD_PARTY, Conda
from vllm_ascend import soc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes/conda"
NPUS = [row for row in soc.rows() if row.is_npu]
STAGE_1 = "ascendc-batch-invariant-ops"


@pytest.fixture(scope="module")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A channel with this machine's Python and compiler, and stubs of CANN's packages."""
    environ = {"PATH": "/usr/bin:/bin"}
    compilers = {name: toolchain.find_compiler(name, environ) for name in ("c", "cxx")}
    cmake = toolchain.find_cmake(environ)
    machine = plan_machine(interpreter.running(), compilers, cmake, "patchelf")
    stubs = [m for m in THIRD_PARTY if m.name.startswith("cann-")]
    stubs.append(Metadata("ninja", "1.13", "0", "noarch"))  # no test here compiles
    folder = tmp_path_factory.mktemp("third-party")
    assemble(folder, [*machine, *(Planned(stub, tuple) for stub in stubs)], Progress())
    return folder.as_uri()


def built(output: Path, name: str) -> set[str]:
    """The build strings of a recipe's packages up to their hash."""
    files = [path for path in output.glob("*/*.conda") if path.name.rsplit("-", 2)[0] == name]
    return {str(conda_archive.read_index(path)["build"]).partition("_h")[0] for path in files}


def build(
    conda: Conda,
    output: Path,
    channel: str,
    recipe: str,
    choice: Sequence[tuple[str, str]],
    *,
    downloads: str = "",
    fails: bool = False,
) -> str:
    """Runs conda-build for (SoC, provider) pairs; its output."""
    variants = {
        **yaml.safe_load((RECIPES / "variants.yaml").read_text()),
        "soc": [name for name, _ in choice],
        "provider": [provider for _, provider in choice],
    }
    file = output.parent / f"{recipe}.yaml"
    file.write_text(yaml.safe_dump(variants))
    options = ["--override-channels", "--channel", output.as_uri(), "--channel", channel]
    options += ["--variant-config-files", str(file), "--output-folder", str(output)]
    environ = {"BI_DOWNLOADS": downloads}
    return conda("build", *options, RECIPES / recipe, fails=fails, environ=environ)


@pytest.fixture
def output(conda: Conda, third_party: str, tmp_path: Path) -> Path:
    """A channel with every variant of the choice, built."""
    if "conda-build" not in conda("info"):
        pytest.skip("no conda: no conda-build beside it")
    folder = tmp_path / "a channel"
    folder.mkdir()
    build(conda, folder, third_party, "ascend-soc", [(row.name, "source") for row in soc.rows()])
    return folder


def test_every_soc_is_a_build_of_the_choice(output: Path) -> None:
    assert built(output, "ascend-soc") == {row.name for row in soc.rows()}


def test_stage_1_of_an_npu_is_huaweis_run_package(
    conda: Conda, third_party: str, output: Path, tmp_path: Path
) -> None:
    """With a run package that this test makes in its place."""
    stage, downloads = tmp_path / "stage", tmp_path / "downloads"
    for folder in (stage / "op_api/lib", stage / "op_api/include", downloads):
        folder.mkdir(parents=True)
    header = stage / run_package.HEADER
    header.write_bytes((ROOT / "csrc" / run_package.HEADER).read_bytes())
    library = ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"]
    subprocess.run([*library, stage / run_package.LIBRARY], check=True)
    official = [(row.name, "official") for row in NPUS]

    def attempt(fails: bool = False) -> str:
        where = str(downloads)
        return build(conda, output, third_party, STAGE_1, official, downloads=where, fails=fails)

    said = attempt(fails=True)
    for row in NPUS:
        name = read_lock().run_package(row.label, platform.machine())
        assert f"error: no sha256 is known for {name}" in said or name in read_lock().sha256
    version = read_lock().version
    made = [run_package.build(stage, row, downloads, version=version) for row in NPUS]
    sums = "".join(f"{package.sha256}  {package.path.name}\n" for package in made)
    (downloads / SUMS).write_text(sums)
    attempt()
    assert built(output, STAGE_1) == {f"{row.name}_official" for row in NPUS}


def test_this_trees_operators_for_an_npu_are_refused_in_one_line(
    conda: Conda, third_party: str, output: Path
) -> None:
    npu = NPUS[0].name
    said = build(conda, output, third_party, STAGE_1, [(npu, "source")], fails=True)
    why = f"error: provider=source: the operators of {npu} are not in this tree yet"
    assert f"{why}; build provider=official" in [line.strip() for line in said.splitlines()]
    assert built(output, STAGE_1) == set()
