# SPDX-License-Identifier: Apache-2.0
"""Make the lock files of ``locks/`` from ``locks/plan.toml``.

pip resolves (``pip install --dry-run --report``), so that what is locked is what pip would have
installed from the machine's configured index, wheels only; the report states each file's sha256.
"""

from __future__ import annotations

import email.parser
import json
import platform
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from provision.lockfile import LockError, Pin, normalise, parse, read, render

_HEADER = """SPDX-License-Identifier: Apache-2.0
{about}
CPython {python}, {platform}. Made by scripts/lock from locks/plan.toml; do not edit."""
_INSTALL = "Install with: pip install --no-deps --require-hashes -r locks/{name}.txt"
_DOWNLOAD = "For recipes: recipes/conda/README.md says how to download it."


@dataclass(frozen=True)
class Plan:
    """One lock's recipe, as a [lock.<name>] table of plan.toml states it."""

    name: str
    about: str
    requires: tuple[str, ...]
    distribution: str | None = None
    without: frozenset[str] = field(default_factory=frozenset)
    drop_extras: frozenset[str] = field(default_factory=frozenset)
    without_deps: tuple[str, ...] = ()
    constrain_to: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    sources: tuple[Pin, ...] = ()


def read_plan(path: Path) -> tuple[str, str, tuple[Plan, ...]]:
    """(Python version, platform, locks in order) of a plan.toml."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    plans = tuple(
        Plan(
            name=name,
            about=table["about"],
            requires=tuple(table["requires"]),
            distribution=table.get("distribution"),
            without=frozenset(map(normalise, table.get("without", ()))),
            drop_extras=frozenset(map(normalise, table.get("drop_extras", ()))),
            without_deps=tuple(table["without_deps"]),
            constrain_to=tuple(table["constrain_to"]),
            machines=tuple(table.get("machines", ())),
            sources=parse("\n".join(table.get("sources", ())), f"{path}: {name}"),
        )
        for name, table in data["lock"].items()
    )
    return data["python"], data["platform"], plans


def _pip(arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = errors[-1] if errors else done.stderr.strip() or "no message"
        raise LockError(f"pip {' '.join(arguments[:1])} failed: {reason}")


def _report(arguments: Sequence[str], scratch: Path) -> list[Pin]:
    report = scratch / "report.json"
    _pip(
        [
            *("install", "--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:"),
            *("--report", str(report)),
            *arguments,
        ]
    )
    return pins_of_report(json.loads(report.read_text(encoding="utf-8")))


def pins_of_report(report: dict[str, Any]) -> list[Pin]:
    """The pins a pip installation report (version 1) describes."""
    pins = []
    for item in report["install"]:
        metadata = item["metadata"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        pins.append(Pin(normalise(metadata["name"]), metadata["version"], (digest,)))
    return pins


def requirements_of_wheel(wheel: Path, plan: Plan) -> list[str]:
    """A wheel's own requirements, less those the plan leaves out; markers are kept."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = email.parser.BytesParser().parsebytes(archive.read(name), headersonly=True)
    kept = []
    for line in metadata.get_all("Requires-Dist", ()):
        requirement = Requirement(line)
        if requirement.marker is not None and "extra" in str(requirement.marker):
            continue
        if normalise(requirement.name) in plan.without:
            continue
        if normalise(requirement.name) in plan.drop_extras:
            requirement.extras = set()
        kept.append(str(requirement))
    return kept


def _for_each_machine(plan: Plan, python: str, scratch: Path) -> list[Pin]:
    """The wheels of the plan's requirements, each pin with the sha256 of every machine's."""
    digests: dict[tuple[str, str], list[str]] = {}
    for machine in plan.machines:
        target = ["--platform", f"manylinux_2_28_{machine}", "--python-version", python]
        target += ["--implementation", "cp", "--target", str(scratch / machine)]
        for pin in _report(["--no-deps", *target, *plan.requires], scratch):
            digests.setdefault((pin.name, pin.version), []).extend(pin.sha256)
    return [Pin(name, version, tuple(found)) for (name, version), found in digests.items()]


def make(plan: Plan, python: str, platform_name: str, folder: Path) -> str:
    """The text of one lock file; the locks it is constrained to must exist in ``folder``."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        header = _HEADER.format(about=plan.about, python=python, platform=platform_name)
        if plan.machines:
            header = header.replace(platform_name, f"linux ({', '.join(plan.machines)})")
            pins = [*_for_each_machine(plan, python, scratch), *plan.sources]
            return render(pins, f"{header}\n{_DOWNLOAD}")
        requires = list(plan.requires)
        extra: list[Pin] = []
        if plan.distribution is not None:
            extra += _report(["--no-deps", plan.distribution], scratch)
            _pip(["download", "--quiet", "--no-deps", "-d", str(scratch), plan.distribution])
            [wheel] = scratch.glob("*.whl")
            requires += requirements_of_wheel(wheel, plan)
        constraints = scratch / "constraints.txt"
        constraints.write_text(
            "".join(
                f"{pin.name}=={pin.version}\n"
                for other in plan.constrain_to
                for pin in read(folder / f"{other}.txt")
            ),
            encoding="utf-8",
        )
        wanted = scratch / "wanted.txt"
        wanted.write_text("\n".join(requires) + "\n", encoding="utf-8")
        pins = _report(["-r", str(wanted), "-c", str(constraints)], scratch)
        if plan.without_deps:
            extra += _report(["--no-deps", *plan.without_deps], scratch)
    unwanted = plan.without - {normalise(Requirement(r).name) for r in plan.without_deps}
    found = unwanted & {pin.name for pin in pins}
    if found:
        raise LockError(
            f"{plan.name}: {', '.join(sorted(found))} came in through another requirement; "
            "name what pulls it under without_deps in locks/plan.toml"
        )
    return render([*pins, *extra], f"{header}\n{_INSTALL.format(name=plan.name)}")


def check_machine(python: str, platform_name: str) -> None:
    """LockError unless this interpreter is what the locks are for."""
    here = f"{sys.platform}-{platform.machine()}"
    running = ".".join(map(str, sys.version_info[:2]))
    if (running, here) != (python, platform_name):
        raise LockError(
            f"the locks are for CPython {python} on {platform_name}; this is {running} on {here}"
        )


def relock(folder: Path, names: Sequence[str]) -> None:
    """Write ``folder/<name>.txt`` for the named locks (all of them if none is named)."""
    python, platform_name, plans = read_plan(folder / "plan.toml")
    check_machine(python, platform_name)
    unknown = set(names) - {plan.name for plan in plans}
    if unknown:
        known = ", ".join(plan.name for plan in plans)
        raise LockError(f"no lock named {', '.join(sorted(unknown))}; there are: {known}")
    for plan in plans:
        if names and plan.name not in names:
            continue
        text = make(plan, python, platform_name, folder)
        target = folder / f"{plan.name}.txt"
        partial = target.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
        print(f"{target.name}: {text.count('==')} pins", flush=True)
