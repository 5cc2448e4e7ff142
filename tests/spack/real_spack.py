# SPDX-License-Identifier: Apache-2.0
"""A Spack to test with: found as README.md says, with a configuration of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stub_cann.make import make_stub_cann

ROOT = Path(__file__).resolve().parent.parent.parent
REPOSITORY = ROOT / "recipes/spack/spack_repo/ascend"
TREES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spack-trees"


@dataclass(frozen=True, slots=True)
class Spack:
    """A Spack and a configuration scope that knows our repository."""

    executable: Path
    environ: dict[str, str]
    scope: Path

    def __call__(self, *arguments: str, fails: bool = False, cwd: Path | None = None) -> str:
        """Runs a command of Spack; its output, both streams.

        Raises:
            AssertionError: it failed, or with `fails`, it did not.
        """
        run = subprocess.run(
            [self.executable, *arguments],
            env=self.environ,
            cwd=cwd or self.scope,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (run.returncode != 0) == fails, run.stdout
        return run.stdout

    def with_scope(self, scope: Path) -> Spack:
        """The same Spack with a copy of its configuration in the new directory `scope`."""
        files = [path for path in self.scope.iterdir() if path.suffix == ".yaml"]
        scope.mkdir()
        for path in files:
            shutil.copy(path, scope)
        return Spack(self.executable, self.environ | {"SPACK_USER_CONFIG_PATH": str(scope)}, scope)

    def concretize(self, *requests: str, host: str = "") -> dict[str, Any]:
        """Each request's specs, or why it is refused; see concretize.py.

        Args:
            host: microarchitecture to believe this machine to be; its own by default.
        """
        answer = self.scope / "answer.json"
        script = Path(__file__).with_name("concretize.py")
        self("python", str(script), str(answer), host, *requests)
        result: dict[str, Any] = json.loads(answer.read_text())
        return result


def find_spack() -> Path:
    """The executable of a Spack, or the test is skipped."""
    root = os.environ.get("SPACK_ROOT")
    candidates = [Path(root) / "bin/spack"] if root else []
    on_path = shutil.which("spack")
    candidates += [Path(on_path)] if on_path else []
    candidates.append(TREES / "spack/bin/spack")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    pytest.skip("no Spack")


def find_python() -> str:
    """A Python with clingo, or the test is skipped."""
    for python in (os.environ.get("SPACK_PYTHON"), str(TREES / "venv/bin/python"), sys.executable):
        if python and Path(python).exists():
            probe = subprocess.run([python, "-c", "import clingo"], capture_output=True)
            if probe.returncode == 0:
                return python
    pytest.skip("no Spack: no Python with clingo for it")


def prefix_for_every_soc(prefix: Path) -> Path:
    """This environment, and beside its packages what building vLLM for an NPU takes.

    Links: torch alone has hundreds of megabytes.
    """
    wheels = TREES / "wheels"
    if not wheels.is_dir():
        pytest.skip("no Spack: no wheels for its externals")
    if not prefix.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
        packages = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
        packages /= "site-packages"
        for entry in (Path(sys.prefix) / packages).iterdir():
            (prefix / packages / entry.name).symlink_to(entry)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                names = {name.partition("/")[0] for name in archive.namelist()}
                # Unpacked here and not by pip, which might follow a link to what it replaces.
                if not any((prefix / packages / name).exists() for name in names):
                    archive.extractall(prefix / packages)
    return prefix


def tool_externals() -> dict[str, Any]:
    """Compilers and build tools of this machine, as packages.yaml has them."""
    gcc = shutil.which("gcc") or pytest.skip("no Spack: no gcc for it")
    number = subprocess.run([gcc, "-dumpfullversion"], check=True, capture_output=True, text=True)
    compilers = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
    entries: dict[str, Any] = {
        "gcc": {
            "buildable": False,
            "externals": [
                {
                    "spec": f"gcc@{number.stdout.strip()} languages:='c,c++,fortran'",
                    "prefix": str(Path(gcc).parent.parent),
                    "extra_attributes": {
                        # py-torch's recipe asks for a Fortran compiler that nothing here runs.
                        "compilers": {
                            language: str(Path(gcc).with_name(name))
                            for language, name in compilers.items()
                        }
                    },
                }
            ],
        }
    }
    entries |= {language: {"require": ["gcc"]} for language in compilers}
    for package, command in {"cmake": "cmake", "gmake": "make", "ninja": "ninja"}.items():
        tool = shutil.which(command, path="/usr/bin:/bin:/usr/local/bin")
        if tool:
            said = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
            version = next(word for word in said.split() if word[0].isdigit())
            prefix = str(Path(tool).parent.parent)
            entries[package] = {
                "buildable": False,
                "externals": [{"spec": f"{package}@{version}", "prefix": prefix}],
            }
    return entries


def write_configuration(scope: Path, prefix: Path, cann: Path) -> None:
    """A scope with our repository, the externals of `prefix`, and the modules of our site."""
    scope.mkdir(parents=True, exist_ok=True)
    builtin = TREES / "spack-packages/repos/spack_repo/builtin"
    if not builtin.is_dir():
        pytest.skip("no Spack: no clone of spack-packages beside it")
    externals = subprocess.run(
        [ROOT / "scripts/spack-externals", str(prefix)],
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    packages: dict[str, Any] = yaml.safe_load(externals)["packages"] | tool_externals()
    packages["cann"] = {
        "buildable": False,
        "externals": [{"spec": "cann@9.1.0", "prefix": str(cann)}],
    }
    # setuptools builds wheels by itself, Spack's PythonPackage asks for it all the same.
    wheel = {**packages["py-setuptools"]["externals"][0], "spec": "py-wheel@0.48.0"}
    packages.setdefault("py-wheel", {"buildable": False, "externals": [wheel]})
    mirror = {"url": (TREES / "mirror").as_uri(), "source": True, "binary": False}
    sections: dict[str, Any] = {
        "repos": {"ascend": str(REPOSITORY), "builtin": str(builtin)},
        "bootstrap": {"enable": False},
        "mirrors": {"tests": mirror},
        "config": {
            "install_tree": {"root": str(scope / "store")},
            "build_stage": [str(scope / "stage")],
            "source_cache": str(scope / "sources"),
            "build_jobs": 2,
            "template_dirs": [str(ROOT / "recipes/spack/site/templates")],
        },
        "packages": packages,
    }
    for section, content in sections.items():
        (scope / f"{section}.yaml").write_text(yaml.safe_dump({section: content}))
    shutil.copy(ROOT / "recipes/spack/site/modules.yaml", scope / "modules.yaml")


def make_spack(top: Path) -> Spack:
    """A Spack that keeps everything below `top`; its index of packages is kept between runs.

    Skips the test where there is none.
    """
    executable, python = find_spack(), find_python()
    cann = make_stub_cann(top / "Ascend")
    write_configuration(top / "scope", prefix_for_every_soc(top / "prefix"), cann)
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SPACK_", "PYTHON", "ASCEND_"))
    }
    environ |= {
        # The user's scope, which commands write to, is ours; there is no system's.
        "SPACK_USER_CONFIG_PATH": str(top / "scope"),
        "SPACK_SYSTEM_CONFIG_PATH": str(top / "none"),
        "SPACK_USER_CACHE_PATH": str(TREES / "test-cache"),
        "SPACK_PYTHON": python,
    }
    return Spack(executable, environ, top / "scope")
