# SPDX-License-Identifier: Apache-2.0
"""A site as recipes/spack/site has it, on this machine: its environments and its modules."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from csrc.run_package import build as run_package
from tests.spack.real_spack import REPOSITORY, ROOT, Spack
from vllm_ascend import soc

LMOD = Path("/usr/share/lmod/lmod")
STAGES = ("ascendc-batch-invariant-ops", "py-batch-invariant-ops", "vllm-ascend")


@dataclass(frozen=True, slots=True)
class Site:
    """A copy of recipes/spack/site; module files go below `top`, a view into each environment."""

    top: Path
    spack: Spack

    def environment(self, name: str) -> Path:
        """Where the environment of a SoC is."""
        return self.top / "site" / name

    def run(self, name: str, *arguments: str, fails: bool = False) -> str:
        """A command of Spack in the environment of a SoC."""
        return self.spack("-e", str(self.environment(name)), *arguments, fails=fails)

    def install(self, name: str, *arguments: str) -> str:
        """Concretizes the environment unless a kept store has its lock file, and installs it."""
        if not (self.environment(name) / "spack.lock").exists():
            self.run(name, "concretize")
        return self.run(name, "install", "--fail-fast", *arguments)

    def hashes(self, name: str) -> dict[str, str]:
        """Hash by package of what the lock file of a SoC has."""
        lock = json.loads((self.environment(name) / "spack.lock").read_text())
        return {spec["name"]: digest for digest, spec in lock["concrete_specs"].items()}

    def prefix(self, name: str, package: str) -> Path:
        """Where a package of the environment of a SoC is installed."""
        digest = self.hashes(name)[package]
        return Path(self.spack("location", "-i", f"/{digest}").splitlines()[-1])

    def modules(self, kind: str) -> Path:
        """The directory that has our module files of this kind: lmod or tcl."""
        return next(path.parent for path in (self.top / kind).rglob("vllm-ascend"))


def make_site(spack: Spack, top: Path) -> Site:
    """Copies the site's files; packages.yaml is left to the scope of `spack`."""
    shutil.copytree(ROOT / "recipes/spack/site", top / "site", dirs_exist_ok=True)
    repository = top / "spack_repo/ascend"
    repository.parent.mkdir(exist_ok=True)
    repository.unlink(missing_ok=True)
    repository.symlink_to(REPOSITORY)
    path = top / "site/modules.yaml"
    line = "    enable: [lmod, tcl]\n"
    assert line in path.read_text()
    roots = json.dumps({kind: str(top / kind) for kind in ("lmod", "tcl")})
    path.write_text(path.read_text().replace(line, f"{line}    roots: {roots}\n"))
    write_packages(top / "site/packages.yaml", {})
    return Site(top, spack)


def write_packages(path: Path, packages: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump({"packages": dict(packages)}))


def run_package_for(row: soc.Soc, folder: Path, version: str = "0.1.0") -> run_package.Built:
    """A run package in the place of Huawei's: it installs as one does, and has no operator."""
    stage = folder / "stage"
    (stage / "op_api/lib").mkdir(parents=True)
    (stage / "op_api/include").mkdir()
    shutil.copy(ROOT / "csrc/op_api/include/batch_invariant.h", stage / "op_api/include")
    library = stage / "op_api/lib/libcust_opapi.so"
    command = ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", str(library)]
    subprocess.run(command, check=True)
    return run_package.build(stage, row, folder, version=version)


def extension_archive(folder: Path, imports: str = "import torch\n") -> Path:
    """An archive in the place of Huawei's extension: a package that has nothing but its name.

    Args:
        imports: what it needs of others to be built.
    """
    path = folder / "batch_invariant-torch_ops_extension-2.0.0.zip"
    setup = (
        "from setuptools import setup\n"
        f"{imports}"
        "setup(name='batch_invariant_ops', version='2.0.0', packages=['batch_invariant_ops'])\n"
    )
    with zipfile.ZipFile(path, "w") as archive:
        # The time of an entry is in the sha256, and that in the package's hash.
        for name, text in {
            "extension/setup.py": setup,
            "extension/batch_invariant_ops/__init__.py": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return path


def environment_modules() -> Path:
    """modulecmd.tcl of environment-modules, or the test is skipped.

    Debian does not install it beside Lmod, so MODULECMD_TCL may name an unpacked one.
    """
    given = os.environ.get("MODULECMD_TCL")
    candidates = [Path(given)] if given else []
    candidates += sorted(Path("/usr/lib").glob("*/modulecmd.tcl"))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    pytest.skip("no environment-modules")


def module_command(kind: str, shell: str) -> str:
    """What defines `module` in a shell."""
    if kind == "tcl":
        command = shlex.join(["tclsh", str(environment_modules()), shell])
    elif LMOD.exists():
        command = f"{LMOD / 'libexec/lmod'} {shell}"
    else:
        pytest.skip("no Lmod")
    return f'module() {{ eval "$({command} "$@")"; }}'


def run_in(shell: str, script: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    executable = shutil.which(shell)
    if executable is None:
        pytest.skip(f"no {shell}")
    return subprocess.run([executable, "-c", script], env=environ, capture_output=True, text=True)


def bare(modules: Path) -> dict[str, str]:
    """An environment with nothing but the module files."""
    return {
        "HOME": os.environ.get("HOME", "/"),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "MODULEPATH": str(modules),
        "MODULEPATH_ROOT": str(modules),
    }
