# SPDX-License-Identifier: Apache-2.0
"""A conda to test with, a channel of our recipes' index entries, and the plugin; see README.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from provision import conda_archive
from provision.conda_package import Metadata
from provision.recipes import render
from provision.standin import native_subdir

ROOT = Path(__file__).resolve().parents[2]
TREES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "conda-trees"

PLATFORMS = ("linux-64", "linux-aarch64")

# What others package and our recipes ask for by SoC or build; nothing is installed from these.
THIRD_PARTY = (
    Metadata("python", "3.11.7", "0_cp311", "noarch"),
    Metadata("pytorch", "2.13.0", "cpu_0", "noarch", depends=("python",)),
    *(
        Metadata(name, "9.1.0", "0", "noarch")
        for name in ("cann-toolkit", "cann-910b-ops", "cann-a3-ops", "cann-950-ops")
    ),
)


# `python -m conda`, with lines of a test's own before, and out before the interpreter shuts down in
# good order, which the solver's threads may crash.
MAIN = """\
import os, sys
{before}
from conda.cli import main
code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code or 0)
"""


@dataclass(frozen=True, slots=True)
class Conda:
    """A conda with a configuration of its own; nothing of the user's is read or written."""

    command: tuple[str, ...]
    environ: dict[str, str]

    def __call__(
        self,
        *arguments: str | Path,
        fails: bool = False,
        plugin: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> str:
        """Runs a command; its output, both streams.

        Raises:
            AssertionError: it failed, or with `fails`, it did not.
        """
        path = {} if plugin is None else {"PYTHONPATH": str(plugin)}
        done = subprocess.run(
            [*self.command, *map(str, arguments)],
            env={**self.environ, **path, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout
        return done.stdout


def find_conda() -> tuple[str, ...]:
    """The command of a conda, or the test is skipped."""
    for executable in (os.environ.get("CONDA_EXE"), shutil.which("conda")):
        if executable and Path(executable).is_file():
            return (executable,)
    python = clone()
    return (python, "-c", MAIN.format(before="")) if python else pytest.skip("no conda")


def clone() -> str | None:
    """The Python of a conda that is a clone's, if there is one."""
    python = TREES / "venv/bin/python"
    if python.exists():
        probe = subprocess.run([python, "-m", "conda", "--version"], capture_output=True)
        if probe.returncode == 0:
            return str(python)
    return None


@pytest.fixture(scope="session")
def conda(tmp_path_factory: pytest.TempPathFactory) -> Conda:
    command = find_conda()
    home = tmp_path_factory.mktemp("conda")
    settings = ["offline: true", "channels: []", "notify_outdated_conda: false"]
    if command[0].startswith(str(TREES)):
        # A clone has none of its default solver's libraries.
        settings.append("solver: rattler")
    (home / "condarc").write_text("\n".join(settings) + "\n")
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("CONDA", "PYTHON", "ASCEND", "MAMBA", "_CE_"))
    }
    environ |= {
        "HOME": str(home),
        "CONDARC": str(home / "condarc"),
        "CONDA_PKGS_DIRS": str(home / "pkgs"),
        "CONDA_ENVS_DIRS": str(home / "envs"),
        "RATTLER_CACHE_DIR": str(home / "rattler"),
    }
    return Conda(command, environ)


def index_entry(recipe: dict[str, Any], subdir: str, known: set[str]) -> tuple[str, dict[str, Any]]:
    """File name and index entry of the package that a rendered recipe makes.

    Requirements that nothing in the channel has are left out.
    """
    package, build, required = recipe["package"], recipe["build"], recipe["requirements"]
    depends = [str(spec) for spec in required.get("run", ()) if str(spec).split()[0] in known]
    name, version, string = package["name"], str(package["version"]), build["string"]
    # As rattler-build writes `down_prioritize_variant`.
    worse = build.get("variant", {}).get("down_prioritize_variant") or 0
    metadata = Metadata(
        name=name,
        version=version,
        build=string,
        subdir="noarch" if build.get("noarch") else subdir,
        noarch=build.get("noarch"),
        depends=tuple(depends),
        constrains=tuple(map(str, required.get("run_constraints", ()))),
        track_features=" ".join(f"{name}-p-{number}" for number in range(worse)) or None,
    )
    return metadata.file_name, conda_archive.index_record(metadata)


def write_channel(folder: Path, recipes: Sequence[str]) -> None:
    """The index of a channel that has every variant of the recipes; it holds no package."""
    known = {*recipes, *(metadata.name for metadata in THIRD_PARTY)}
    entries: dict[str, dict[str, Any]] = {part: {} for part in ("noarch", *PLATFORMS)}
    for metadata in THIRD_PARTY:
        entries["noarch"][metadata.file_name] = conda_archive.index_record(metadata)
    for name in recipes:
        for subdir in PLATFORMS:
            for variant in render(ROOT, name, subdir):
                file, entry = index_entry(variant.recipe.to_dict(), subdir, known)
                entries[entry["subdir"]][file] = entry
    for part, found in entries.items():
        for entry in found.values():
            # Nothing is fetched; conda wants to know what it would be.
            entry |= {"sha256": "0" * 64, "md5": "0" * 32, "size": 1}
        (folder / part).mkdir(parents=True)
        (folder / part / "repodata.json").write_text(
            json.dumps(
                {
                    "info": {"subdir": part},
                    "packages": {},
                    "packages.conda": found,
                    "removed": [],
                    "repodata_version": 1,
                }
            )
        )


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A channel of every variant of our recipes, in index entries only."""
    folder = tmp_path_factory.mktemp("channel")
    names = [path.parent.name for path in (ROOT / "recipes/conda").glob("*/recipe.yaml")]
    write_channel(folder, sorted({*names} - {"conda-ascend"}))
    return folder.as_uri()


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with conda-ascend installed from the sources that its recipe names."""
    place = tmp_path_factory.mktemp("plugin")
    [variant] = render(ROOT, "conda-ascend", native_subdir())
    sources, target = place / "sources", place / "installed"
    sources.mkdir()
    for source in variant.recipe.to_dict()["source"]:
        path = ROOT / "recipes/conda/conda-ascend" / source["path"]
        into = sources / (source.get("target_directory") or ".")
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, into, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy(path, into)
    script = (ROOT / "recipes/conda/conda-ascend/build.sh").read_text()
    [without] = [line for line in script.splitlines() if line.startswith("rm ")]
    subprocess.run(["bash", "-euc", without], cwd=sources, check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", target, sources], check=True)
    return target
