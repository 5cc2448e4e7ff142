# SPDX-License-Identifier: Apache-2.0
"""The bundle of an NPU, with stubs in the place of what Huawei gives; see tests/stub_cann."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from provision import lockfile, official_artifact
from provision.bundle_verify import verify
from provision.conda_package import Metadata
from provision.progress import Progress
from provision.standin import Planned, assemble
from provision.state import State, file_sha256, state_folder

from csrc.run_package import build as run_package
from tests.artifacts.circumstances import here
from tests.spack.real_spack import TREES
from tests.spack.sites import extension_archive, run_package_for
from vllm_ascend import soc

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NPU = soc.resolve("910b")
VERSION = official_artifact.read_lock().version


def downloaded(folder: Path) -> Path:
    """What recipes/conda/README.md says to download; the two of Huawei's are made here.

    The others are those of Spack's source mirror beside its tests, by their sha256.
    """
    folder.mkdir()
    archives = TREES / "mirror/_source-cache/archive"
    mirrored = {path.name[:64]: path for path in archives.glob("*/*")}
    for pin in lockfile.read(ROOT / "locks/runtime-npu.txt"):
        found = [mirrored[digest] for digest in pin.sha256 if digest in mirrored]
        if not found:
            pytest.skip(f"skipped: no {pin.name} {pin.version} in {archives}")
        name = f"vllm-{pin.version}.tar.gz"
        if pin.name == "torch-npu":
            name = f"torch_npu-{pin.version}-cp311-cp311-manylinux_2_28_{platform.machine()}.whl"
        (folder / name).symlink_to(found[0])
    made = run_package_for(NPU, folder, VERSION)
    (folder / official_artifact.SUMS).write_text(f"{made.sha256}  {made.path.name}\n")
    # torch would load torch-npu, and that needs more of CANN than a stub has.
    extension_archive(folder, imports="")
    return folder


def tree_for(top: Path, downloads: Path) -> Path:
    """A copy of the tree in which the sha256 of the made extension is the known one."""
    tree = here(top).tree()
    lock = official_artifact.read_lock()
    archive = downloads / lock.extension
    path = tree / "locks/official.toml"
    text = path.read_text().replace(lock.sha256[lock.extension], file_sha256(archive))
    path.write_text(text)
    return tree


@pytest.fixture
def state() -> Iterator[State]:
    """The usual one, for its stand-in channel, less the stubs that come into it."""
    usual = state_folder(ROOT, None, dict(os.environ))
    yield usual
    shutil.rmtree(usual.stages_for(NPU.name), ignore_errors=True)


def test_the_chain_of_an_npu_is_bundled_and_installed_without_a_network(
    state: State, tmp_path: Path
) -> None:
    downloads = downloaded(tmp_path / "downloads")
    cann = tmp_path / "cann"
    stubs = [Metadata(name, "9.1.0", "0", "noarch") for name in ("cann-toolkit", "cann-910b-ops")]
    assemble(cann, [Planned(stub, tuple) for stub in stubs], Progress())
    tree = tree_for(tmp_path / "elsewhere", downloads)
    archive = tmp_path / "npu.tar"
    done = subprocess.run(
        [
            *(tree / "scripts/bundle", "910b", "--downloads", downloads, "--cann", cann),
            *("--output", archive, "--state", state.root),
        ],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    verdict = verify(archive)
    assert verdict.faults == []
    assert verdict.about["soc"] == NPU.name
    components = {
        each["name"]: each for each in json.loads(verdict.documents["sbom.cdx.json"])["components"]
    }
    official = ("ascendc-batch-invariant-ops", "batch-invariant-ops")
    assert {components[name]["version"] for name in official} == {VERSION}
    assert "torch-npu" in components and "cann-910b-ops" in components

    place = here(tmp_path / "there")
    subprocess.run(["tar", "-xf", archive, "-C", place.directory], check=True)
    [root] = place.directory.glob("vllm-ascend-*")
    prefix = place.directory / "prefix"
    clean = {"PYTHON": os.path.realpath(sys.executable), "PATH": "/usr/bin:/bin"}
    said = place.made(["bash", root / "install", "--prefix", prefix], **clean)
    assert f"for {NPU.name} in {prefix}" in said.splitlines()[-1]
    library = prefix / "share/ascend/opp/vendors/batch_invariant" / run_package.LIBRARY
    assert library.is_file()
    script = (
        "import vllm; from importlib.metadata import version as v; print(v('vllm'), v('torch-npu'))"
    )
    said = place.made(
        [prefix / "bin/python", "-c", script], TORCH_DEVICE_BACKEND_AUTOLOAD="0", **clean
    )
    assert said.splitlines()[-1] == "0.32.0+empty 2.13.0"
