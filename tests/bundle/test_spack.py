# SPDX-License-Identifier: Apache-2.0
"""The bundle of the kind spack: complete, and installed by a Spack that has no network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from provision import lockfile, official_artifact
from provision.bundle_mirror import ARCHIVES
from provision.bundle_spack import locks_of
from provision.bundle_verify import verify

from tests import guide
from tests.artifacts.circumstances import Circumstances
from tests.bundle.test_archive import run
from tests.bundle.test_cpu import alone as alone
from tests.bundle.test_npu import NPU, downloaded, tree_for
from tests.bundle.test_sbom import invalid
from tests.spack.real_spack import TREES, find_python, find_spack, tool_externals

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MIRROR = TREES / "mirror"


def bundled(output: Path, *arguments: str | Path, tree: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Makes a bundle; its components by name, after it was verified."""
    done = subprocess.run(
        [tree / "scripts/bundle", *arguments, "--kind", "spack", "--output", output],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    verdict = verify(output)
    assert verdict.faults == []
    text = verdict.documents["sbom.cdx.json"].decode()
    assert not invalid(text)
    components: dict[str, dict[str, Any]] = {
        each["name"]: each for each in json.loads(text)["components"]
    }
    pins = [
        p
        for name in locks_of(verdict.about["soc"])
        for p in lockfile.read(ROOT / f"locks/{name}.txt")
    ]
    for pin in pins:
        component = components[pin.name]
        assert component["version"] == pin.version
        assert component["purl"].startswith(f"pkg:pypi/{pin.name}@")
        assert component["hashes"][0]["content"] in pin.sha256
    return components


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MIRROR.is_dir():
        pytest.skip("no Spack: no source mirror beside it")
    path: Path = tmp_path_factory.mktemp("spack") / "cpu.tar"
    components = bundled(path, "cpu", "--mirror", MIRROR)
    archives = {name for name in components if name.startswith("archive-")}
    assert archives == {f"archive-{file.name[:16]}" for file in (MIRROR / ARCHIVES).glob("*/*")}
    return path


def configuration(scope: Path) -> dict[str, str]:
    """A site's Spack: its compilers, build tools and package repository, no externals of ours."""
    builtin = TREES / "spack-packages/repos/spack_repo/builtin"
    if not builtin.is_dir():
        pytest.skip("no Spack: no clone of spack-packages beside it")
    scope.mkdir()
    sections: dict[str, Any] = {
        "repos": {"builtin": str(builtin)},
        "bootstrap": {"enable": False},
        "config": {
            "install_tree": {"root": str(scope / "store")},
            "build_stage": [str(scope / "stage")],
            "source_cache": str(scope / "sources"),
            "build_jobs": 2,
        },
        "packages": tool_externals(),
    }
    for section, content in sections.items():
        (scope / f"{section}.yaml").write_text(yaml.safe_dump({section: content}))
    return {
        "SPACK_USER_CONFIG_PATH": str(scope),
        "SPACK_SYSTEM_CONFIG_PATH": str(scope / "none"),
        "SPACK_USER_CACHE_PATH": str(TREES / "test-cache"),
        "SPACK_PYTHON": find_python(),
        "PYTHON": os.path.realpath(sys.executable),
    }


def test_spack_installs_it_without_a_network_and_the_guides_check_runs(
    cpu: Path, alone: Circumstances
) -> None:
    spack = find_spack()
    environ = configuration(alone.directory / "scope")
    subprocess.run(["tar", "-xf", cpu, "-C", alone.directory], check=True)
    [root] = alone.directory.glob("vllm-ascend-*-spack-*")
    prefix = alone.directory / "by-spack"
    command: list[str | Path] = ["bash", root / "install", "--prefix", prefix, "--spack", spack]
    said = alone.made(command, **environ)
    assert said.splitlines()[-1].startswith("install: ok: vllm-ascend 0.32.0 for cpu by Spack")
    assert verify(root).faults == []
    shutil.rmtree(root)
    place = prefix / "source/recipes/spack/site/cpu"
    load = f'eval "$({spack} -e {place} load --sh vllm-ascend)"\n'
    said = alone.made(["bash", "-euc", load + guide.block("id=quick-check")], **environ)
    assert said.splitlines()[-1] == "batch_invariant_ops.npu_matmul_batch_invariant"


def test_an_npus_has_what_spack_would_fetch_and_huaweis_artifacts(tmp_path: Path) -> None:
    downloads = downloaded(tmp_path / "downloads")
    tree = tree_for(tmp_path / "elsewhere", downloads)
    archive = tmp_path / "npu.tar"
    components = bundled(archive, "910b", "--downloads", downloads, tree=tree)
    assert {"torch-npu", "vllm-source"} <= components.keys()
    about = verify(archive).about
    lock = official_artifact.read_lock()
    assert {path for path, _ in about["official"].values()} == {
        f"official/{lock.run_package(NPU.label, about['machine'])}",
        f"official/{lock.extension}",
    }


def test_a_mirror_that_is_none_or_lies_is_refused(tmp_path: Path) -> None:
    done = run("cpu", "--kind", "spack", "--mirror", tmp_path)
    assert done.returncode == 3
    assert f"--mirror {tmp_path}: expected archives in " in done.stderr.splitlines()[-1]
    archive = tmp_path / ARCHIVES / "00" / ("0" * 64)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"another")
    done = run("cpu", "--kind", "spack", "--mirror", tmp_path)
    assert done.returncode == 3
    assert "its name says another" in done.stderr.splitlines()[-1]
