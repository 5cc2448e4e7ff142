# SPDX-License-Identifier: Apache-2.0
"""Spack's own checks find nothing in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spack.real_spack import REPOSITORY, Spack
from tests.stub_cann.make import make_stub_cann

pytestmark = pytest.mark.slow

PACKAGES = sorted(path.parent.name for path in REPOSITORY.glob("packages/*/package.py"))


def test_audit_finds_nothing(spack: Spack) -> None:
    names = [name.replace("_", "-") for name in PACKAGES]
    for said in (spack("audit", "packages", *names), spack("audit", "configs")):
        assert "passed" in said and "found" not in said


def test_detection_is_as_its_tests_say(spack: Spack) -> None:
    assert "PKG-EXTERNALS: passed" in spack("audit", "externals", "cann")


def find_cann(spack: Spack, tmp_path: Path, home: Path) -> str:
    """What Spack says when it looks there; a configuration of its own takes what it finds."""
    own = spack.with_scope(tmp_path / "scope")
    return own("external", "find", "--path", str(home / "bin"), "cann")


@pytest.mark.parametrize("layout", ["new", "old"])
def test_an_installed_cann_is_found(spack: Spack, tmp_path: Path, layout: str) -> None:
    # Of another version than the one in the configuration, which would not be new.
    home = make_stub_cann(tmp_path, "9.0.0", layout=layout, libraries=False)
    assert "cann@9.0.0" in find_cann(spack, tmp_path, home)


def test_a_cann_for_another_machine_is_not_taken(spack: Spack, tmp_path: Path) -> None:
    home = make_stub_cann(tmp_path, arch="riscv64", libraries=False)
    said = find_cann(spack, tmp_path, home)
    assert "is for riscv64" in said and "will not be added" in said
