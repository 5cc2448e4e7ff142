# SPDX-License-Identifier: Apache-2.0
"""The real bundle of soc=cpu: made, carried elsewhere, installed without a network, and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from provision.bundle_verify import verify
from provision.state import file_sha256

from tests import guide
from tests.artifacts.circumstances import Circumstances, here
from tests.bundle.test_archive import run
from tests.bundle.test_sbom import invalid

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Circumstances:
    """A machine with no network; skipped, by name, where no namespace can be made."""
    command = ["unshare", "--net", "true"]
    if os.geteuid() != 0:
        command.insert(1, "--map-root-user")
    tried = subprocess.run(command, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"skipped: no namespace can be made here: {tried.stderr.strip()}")
    return here(tmp_path_factory.mktemp("bundle") / "elsewhere")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the guide says, in the folder that ./scripts/quickstart uses too."""
    home: Path = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        ["bash", "-euc", guide.block("id=bundle")],
        cwd=ROOT,
        env=os.environ | {"HOME": str(home), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    path = home / "vllm-ascend-cpu.tar"
    made, how, verified = done.stdout.splitlines()
    assert made.startswith(f"bundle: ok: {path}, ")
    assert how.startswith("to install: tar -xf vllm-ascend-cpu.tar && bash vllm-ascend-")
    assert made.split()[-1] == verified.split()[-1] == file_sha256(path)
    return path


def test_it_is_made_again_to_the_same_bytes_and_the_json_says_which(
    bundle: Path, tmp_path: Path
) -> None:
    again, result = tmp_path / "again.tar", tmp_path / "result.json"
    done = run("cpu", "--output", again, "--json", result)
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    assert found["bundle"] == str(again) and found["size"] == again.stat().st_size
    assert found["sha256"] == file_sha256(again) == file_sha256(bundle)


def test_its_bill_of_materials_is_valid_and_names_the_chain(bundle: Path) -> None:
    verdict = verify(bundle)
    assert verdict.faults == []
    text = verdict.documents["sbom.cdx.json"].decode()
    assert not invalid(text)
    components = {each["name"]: each for each in json.loads(text)["components"]}
    chain = {"vllm-ascend", "batch-invariant-ops", "ascendc-batch-invariant-ops", "vllm"}
    assert chain | {"ascend-soc", "pytorch", "python", "py-rattler"} <= components.keys()
    # Whose metadata states none, in a field of one line.
    without = {name for name, each in components.items() if "licenses" not in each}
    assert without == {"openai-harmony", "python_abi", "setuptools", "tiktoken"}


def test_it_installs_without_a_network_and_the_guides_check_runs(
    bundle: Path, alone: Circumstances
) -> None:
    (alone.directory / bundle.name).hardlink_to(bundle)
    command = guide.block("id=bundle-install")
    said = alone.made(
        # Between its two lines: a medium that cannot be written to.
        ["bash", "-euc", command.replace("\nbash", "\nchmod -R a-w vllm-ascend-*/\nbash")],
        PYTHON=os.path.realpath(sys.executable),
        PATH="/usr/bin:/bin",
    )
    prefix = alone.directory / "home/vllm-ascend"
    told = f"install: ok: vllm-ascend 0.32.0 for cpu in {prefix}; "
    assert said.splitlines()[-1].startswith(told)
    [root] = alone.directory.glob("vllm-ascend-*/")
    assert verify(root).faults == []
    subprocess.run(["chmod", "-R", "u+w", root], check=True)
    shutil.rmtree(root)  # nothing of the prefix lies there
    inside = f"{prefix}/bin:/usr/bin:/bin"
    said = alone.made(["bash", "-euc", guide.block("id=quick-check")], PATH=inside)
    assert said == "batch_invariant_ops.npu_matmul_batch_invariant\n"
    said = alone.made(["bash", "-euc", "vllm --version"], PATH=inside)
    assert said.splitlines()[-1].startswith("0.32.0")
