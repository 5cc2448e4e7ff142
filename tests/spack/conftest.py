# SPDX-License-Identifier: Apache-2.0
"""A Spack to test with, and a site of it; what takes minutes is done once in a run."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.spack.real_spack import Spack, make_spack
from tests.spack.sites import Site, extension_archive, make_site, run_package_for, write_packages
from vllm_ascend import soc


@pytest.fixture(scope="session")
def spack(tmp_path_factory: pytest.TempPathFactory) -> Spack:
    """A Spack with an empty store, or with the one in BI_SPACK_STORE."""
    kept = os.environ.get("BI_SPACK_STORE")
    return make_spack(Path(kept) if kept else tmp_path_factory.mktemp("spack"))


@pytest.fixture(scope="session")
def site(spack: Spack) -> Site:
    """The site's files, with nothing installed."""
    return make_site(spack, spack.scope.parent / "site-files")


@pytest.fixture(scope="session")
def cpu_site(site: Site) -> Site:
    """The site with its environment of the CPU installed."""
    site.install("cpu")
    return site


@pytest.fixture(scope="session")
def npu_site(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site with its environment of the first NPU installed, with artifacts of our own."""
    row = next(row for row in soc.rows() if row.is_npu)
    folder = tmp_path_factory.mktemp("official")
    built = run_package_for(row, folder)
    archive = extension_archive(folder)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    artifacts = {
        "ascendc-batch-invariant-ops": (built.path, built.sha256),
        "py-batch-invariant-ops": (archive, digest),
    }
    given = {
        package: {"package_attributes": {"official_source": str(path), "official_sha256": sha256}}
        for package, (path, sha256) in artifacts.items()
    }
    write_packages(site.top / "site/packages.yaml", given)
    site.install(row.name)
    return site
