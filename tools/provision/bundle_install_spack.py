# SPDX-License-Identifier: Apache-2.0
"""Install an unpacked bundle of the kind ``spack`` by the Spack that is there.

The prefix gets the externals' virtual environment (``python/``), this tree with the recipes and the
site's files (``source/``), and what Spack would fetch (``mirror/``, ``official/``). Where the
packages go is Spack's own configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provision.preflight import PreflightError, check_python
from provision.progress import Progress

# Lies in each prefix that was made here.
MARK = "bundle.json"
_PARTS = ("source", "mirror", "official")
TOOLS = ("cmake", "gmake", "ninja")


class SpackError(RuntimeError):
    """It cannot be installed; one line says why."""


def find_spack(given: str | None, environment: Mapping[str, str]) -> str:
    """The Spack to use: the option's, SPACK_ROOT's, or that on the path.

    Raises:
        SpackError: there is none.
    """
    root = environment.get("SPACK_ROOT")
    wanted = given or (f"{root}/bin/spack" if root else "spack")
    found = shutil.which(wanted, path=environment.get("PATH"))
    if found is None:
        raise SpackError(f"there is no {wanted}; name Spack's command with --spack")
    return str(Path(found).absolute())


def for_another_python(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what is meant for the Python that runs this."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTHON")}


def check_prefix(prefix: Path) -> None:
    """SpackError if something lies there that was not made here."""
    if prefix.exists() and not (prefix / MARK).is_file():
        if prefix.is_dir() and not any(prefix.iterdir()):
            return
        raise SpackError(
            f"{prefix} exists and was not made from a bundle; choose another with --prefix DIR"
        )


def _run(what: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    """Run a command, all that it prints on standard error."""
    done = subprocess.run(
        list(map(str, command)),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise SpackError(f"{what} failed with exit code {done.returncode}, see above")


def make_python(
    root: Path, about: Mapping[str, Any], folder: Path, environment: Mapping[str, str]
) -> None:
    """The externals' virtual environment, with pip from its own wheel: no ensurepip is needed."""
    shutil.rmtree(folder, ignore_errors=True)
    _run(
        "making the externals' environment",
        [sys.executable, "-P", "-m", "venv", "--without-pip", folder],
        environment,
    )
    [pip] = (root / "wheels").glob("pip-*.whl")
    locks = [root / "source" / "locks" / f"{name}.txt" for name in about["locks"]]
    _run(
        "pip",
        [
            *(folder / "bin" / "python", "-B", pip / "pip", "install", "--quiet"),
            *("--disable-pip-version-check", "--no-deps", "--no-index", "--require-hashes"),
            *("--find-links", root / "wheels"),
            *(f"--requirement={lock}" for lock in locks),
        ],
        environment,
    )
    metadata = root / "source/tools/provision/vllm_metadata.py"
    _run("writing vllm's metadata", [folder / "bin" / "python", "-B", metadata], environment)


def packages_yaml(
    root: Path, about: Mapping[str, Any], prefix: Path, environment: Mapping[str, str]
) -> str:
    """The site's packages.yaml: the externals, and where Huawei's artifacts lie."""
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-m", "cluster.externals", str(prefix / "python")],
        env={**environment, "PYTHONPATH": str(root / "source" / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SpackError(done.stderr.strip())
    lines = done.stdout
    for package, (place, digest) in sorted(about["official"].items()):
        given = {"official_source": str(prefix / place), "official_sha256": digest}
        start = f"  {package}:\n"
        lines += f"{start}    package_attributes: {json.dumps(given)}\n"
    return lines


def site_files(
    root: Path, about: Mapping[str, Any], prefix: Path, environment: Mapping[str, str]
) -> Path:
    """The tree in the prefix, its site's files written for this prefix; the SoC's environment."""
    for part in _PARTS:
        shutil.rmtree(prefix / part, ignore_errors=True)
        if (root / part).is_dir():
            shutil.copytree(root / part, prefix / part)
    # Of a medium that cannot be written to.
    for path in (prefix / "source").rglob("*"):
        path.chmod(path.stat().st_mode | 0o200)
    site = prefix / "source/recipes/spack/site"
    (site / "packages.yaml").write_text(
        packages_yaml(root, about, prefix, environment), encoding="utf-8"
    )
    place: Path = site / str(about["soc"])
    if (prefix / "mirror").is_dir():
        mirror = {"url": (prefix / "mirror").as_uri(), "source": True, "binary": False}
        (site / "mirrors.yaml").write_text(f"mirrors:\n  bundle: {json.dumps(mirror)}\n")
        text = (place / "spack.yaml").read_text(encoding="utf-8")
        include = "  include:\n"
        (place / "spack.yaml").write_text(
            text.replace(include, f"{include}  - ../mirrors.yaml\n"), encoding="utf-8"
        )
    return place


def install(
    root: Path, about: Mapping[str, Any], prefix: Path, spack: str, progress: Progress
) -> Path:
    """Make the prefix and let Spack install; the environment. The caller keeps others out."""
    try:
        check_python(sys.version_info[:2], ("venv",))
    except PreflightError as error:
        raise SpackError(str(error)) from error
    environment = for_another_python(os.environ)
    prefix.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / MARK, prefix / MARK)
    progress("python", f"the externals' environment in {prefix / 'python'}")
    make_python(root, about, prefix / "python", environment)
    place = site_files(root, about, prefix, environment)
    tools = TOOLS if about["soc"] == "cpu" else (*TOOLS, "cann")
    for command in (
        ("external", "find", "--not-buildable", *tools),
        ("concretize", "--force"),
        ("install", "--fail-fast"),
    ):
        progress("spack", " ".join(command))
        _run(f"spack {command[0]}", [spack, "-e", place, *command], environment)
    return place
