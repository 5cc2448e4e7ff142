# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is said in one sentence, leaves everything as before, and a second try works."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.spack.real_spack import Spack
from tests.spack.sites import STAGES, Site, run_package_for
from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc

pytestmark = pytest.mark.slow

STAGE = STAGES[0]
NPU = next(row for row in soc.rows() if row.is_npu)
NEWEST = max((row for row in soc.rows() if row.is_npu), key=lambda row: row.min_cann)


def with_cann(spack: Spack, scope: Path, external: dict[str, str] | None) -> Spack:
    """The same Spack with another CANN, or none."""
    own = spack.with_scope(scope)
    path = scope / "packages.yaml"
    content = yaml.safe_load(path.read_text())
    content["packages"]["cann"] = {"buildable": False, "externals": [external] if external else []}
    path.write_text(yaml.safe_dump(content))
    return own


def with_store(own: Spack, store: Path) -> Spack:
    """The same, and what it installs goes into another store."""
    path = own.scope / "config.yaml"
    content = yaml.safe_load(path.read_text())
    content["config"]["install_tree"]["root"] = str(store)
    path.write_text(yaml.safe_dump(content))
    return own


def test_a_missing_cann(spack: Spack, tmp_path: Path) -> None:
    request = f"{STAGE} target={NPU.targets[0]}"
    refused = with_cann(spack, tmp_path / "scope", None).concretize(request)[request]["refused"]
    assert "cann" in refused


def test_a_cann_that_is_too_old(spack: Spack, tmp_path: Path) -> None:
    request = f"{STAGE} target={NEWEST.targets[0]}"
    home = make_stub_cann(tmp_path, "8.5.0", libraries=False)
    own = with_cann(spack, tmp_path / "scope", {"spec": "cann@8.5.0", "prefix": str(home)})
    refused = own.concretize(request)[request]["refused"]
    assert f"{NEWEST.name} needs CANN {NEWEST.min_cann} or newer" in refused


def test_an_unsupported_architecture(spack: Spack, tmp_path: Path) -> None:
    request = f"{STAGE} soc=cpu"
    # What is installed here would be another host's.
    own = with_store(spack.with_scope(tmp_path / "scope"), tmp_path / "store")
    refused = own.concretize(request, host="ppc64le")[request]["refused"]
    assert "expected an x86_64 or aarch64 host" in refused


def test_an_artifact_whose_sha256_is_unknown_or_wrong_or_that_is_anothers(
    spack: Spack, tmp_path: Path
) -> None:
    # Of its own bytes: Spack's cache may have those of another test.
    built = run_package_for(NPU, tmp_path, version="0.0.9")
    damaged = tmp_path / "damaged.run"
    damaged.write_bytes(built.path.read_bytes()[:-1])
    request = f"{STAGE} target={NPU.targets[0]}"
    own = with_store(spack.with_scope(tmp_path / "scope"), tmp_path / "store")
    said = own("install", request, fails=True)
    assert f"no sha256 of Huawei's artifact is known for {STAGE} soc={NPU.name} on " in said
    assert "set official_source and official_sha256 in packages:" in said

    def give(source: Path) -> None:
        content = yaml.safe_load((spack.scope / "packages.yaml").read_text())
        given = {"official_source": str(source), "official_sha256": built.sha256}
        content["packages"][STAGE] = {"package_attributes": given}
        (own.scope / "packages.yaml").write_text(yaml.safe_dump(content))

    give(damaged)
    said = own("install", request, fails=True)
    assert "sha256 checksum failed" in said and built.sha256 in said
    machine = platform.machine()
    right = f"{NPU.label} on {machine}"
    for replaced, by, found in (
        (f"-{NPU.label}-", f"-{NEWEST.label}-", f"{NEWEST.label} on {machine}"),
        (machine, "riscv64", f"{NPU.label} on riscv64"),
    ):
        other = tmp_path / built.path.name.replace(replaced, by)
        shutil.copy(built.path, other)
        give(other)
        said = own("install", request, fails=True)
        assert f"{other.name} is for {found}, expected {right}" in " ".join(said.split())
    give(built.path)
    assert not list((tmp_path / "store").rglob("libcust_opapi.so"))
    own("install", request)
    assert list((tmp_path / "store").rglob("libcust_opapi.so"))


def stage_1_into(site: Site, store: Path) -> list[str]:
    """The command that installs stage 1 of the NPU's environment into another store."""
    root = f"config:install_tree:root:{store}"
    environment = str(site.environment(NPU.name))
    return [str(site.spack.executable), "-c", root, "-e", environment, "install", STAGE]


def test_two_installs_at_once(npu_site: Site, tmp_path: Path) -> None:
    command = stage_1_into(npu_site, tmp_path / "store")
    running = [
        subprocess.Popen(
            command,
            env=npu_site.spack.environ,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    said = [one.communicate()[0] for one in running]
    assert [one.returncode for one in running] == [0, 0], said
    (library,) = (tmp_path / "store").rglob("libcust_opapi.so")
    assert library.stat().st_size > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, which takes root to make."""
    if os.geteuid() != 0:
        pytest.skip("no root to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "small", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk(npu_site: Site, small_disk: Path) -> None:
    store = small_disk / "store"
    command = stage_1_into(npu_site, store)
    root = command[2]
    npu_site.spack("-c", root, "reindex")
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    # Enough for the database and its locks, not for the package.
    filler.write_bytes(bytes(free.f_bavail * free.f_bsize - 40_000))
    said = npu_site.spack(*command[1:], fails=True)
    assert "no space left" in said.lower()
    assert not list(store.rglob("libcust_opapi.so"))
    filler.unlink()
    npu_site.spack(*command[1:])
    assert list(store.rglob("libcust_opapi.so"))
