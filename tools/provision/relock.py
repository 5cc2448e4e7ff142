# SPDX-License-Identifier: Apache-2.0
"""Make the lock files of ``locks/`` from ``locks/plan.toml``.

pip resolves (``pip install --dry-run --report``), so that what is locked is what pip would have
installed from the machine's configured index, wheels only; the report states each file's sha256.

A lock for other machines too pins the same versions there. pip finds their wheels, but evaluates
markers for the machine it runs on: that nothing is missing there is decided here.
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from provision.lockfile import LockError, Pin, by_name, normalise, parse, read, render

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
    only_on: Mapping[str, str] = field(default_factory=dict)
    wheels: tuple[Pin, ...] = ()
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
            only_on=table.get("only_on", {}),
            wheels=parse("\n".join(table.get("wheels", ())), f"{path}: {name}"),
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


def _report(arguments: Sequence[str], scratch: Path) -> dict[str, Any]:
    report = scratch / "report.json"
    _pip(
        [
            *("install", "--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:"),
            *("--report", str(report)),
            *arguments,
        ]
    )
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


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


def _platforms(machine: str) -> list[str]:
    """pip's tags of a machine whose C library is this one's."""
    major, minor = platform.libc_ver()[1].split(".")[:2]
    tags = [f"manylinux_{major}_{number}" for number in range(int(minor), 16, -1)]
    return [f"{tag}_{machine}" for tag in (*tags, "manylinux2014", "linux")]


def _missing(
    report: dict[str, Any], machine: str, locked: Iterable[str], alone: Iterable[str]
) -> dict[str, str]:
    """Requirement -> who states it, of what a machine's wheels require and the lock has not.

    Those named in ``alone`` are taken as they are.
    """
    names, without = set(locked), set(alone)
    here = report["environment"]
    there = {**here, "platform_machine": machine}

    def needed(requirement: Requirement, extras: Iterable[str]) -> bool:
        # pip saw to it that this machine's extras are complete.
        marker = requirement.marker
        if marker is None or marker.evaluate({**there, "extra": ""}):
            return True
        return any(
            marker.evaluate({**there, "extra": extra})
            and not marker.evaluate({**here, "extra": extra})
            for extra in extras
        )

    missing = {}
    for item in report["install"]:
        metadata = item["metadata"]
        if normalise(metadata["name"]) in without:
            continue
        for line in metadata.get("requires_dist", ()):
            requirement = Requirement(line)
            if normalise(requirement.name) in names:
                continue
            if needed(requirement, metadata.get("provides_extra", ())):
                missing[requirement.name] = metadata["name"]
    return missing


def _with_other_machines(
    plan: Plan,
    pins: Sequence[Pin],
    exempt: Iterable[str],
    alone: Iterable[str],
    python: str,
    scratch: Path,
) -> list[Pin]:
    """``pins``, resolved here, with what the plan's other machines need.

    exempt      names that a wheel may require and the lock may lack
    alone       names whose own requirements are not considered
    """
    digests = {pin.name: list(pin.sha256) for pin in pins}
    stated = by_name(plan.wheels)
    for pin in pins:
        if pin.name in stated:
            if stated[pin.name].version != pin.version:
                raise LockError(
                    f"{plan.name}: `wheels` states another {pin.name} than {pin.version}"
                )
            digests[pin.name] += stated[pin.name].sha256
    for machine in plan.machines:
        if machine == platform.machine():
            continue
        wanted = [pin for pin in pins if plan.only_on.get(pin.name, machine) == machine]
        asked = [f"{pin.name}=={pin.version}" for pin in wanted if pin.name not in stated]
        target = [f"--platform={tag}" for tag in _platforms(machine)]
        target += ["--python-version", python, "--implementation", "cp", "--abi", "abi3"]
        target += ["--abi", f"cp{python.replace('.', '')}", "--abi", "none"]
        report = _report(
            ["--no-deps", *target, "--target", str(scratch / machine), *asked], scratch
        )
        for pin in pins_of_report(report):
            if pin.sha256[0] not in digests[pin.name]:
                digests[pin.name] += pin.sha256
        missing = _missing(report, machine, [*exempt, *(pin.name for pin in wanted)], alone)
        if missing:
            name, who = min(missing.items())
            raise LockError(f"{plan.name}: on {machine} {who} requires {name}, which is not locked")
    return [
        Pin(pin.name, pin.version, tuple(digests[pin.name]), plan.only_on.get(pin.name, ""))
        for pin in pins
    ]


def make(plan: Plan, python: str, platform_name: str, folder: Path) -> str:
    """The text of one lock file; the locks it is constrained to must exist in ``folder``."""
    constraining = [pin for other in plan.constrain_to for pin in read(folder / f"{other}.txt")]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        requires = list(plan.requires)
        extra: list[Pin] = []
        if plan.distribution is not None:
            extra += pins_of_report(_report(["--no-deps", plan.distribution], scratch))
            _pip(["download", "--quiet", "--no-deps", "-d", str(scratch), plan.distribution])
            [wheel] = scratch.glob("*.whl")
            requires += requirements_of_wheel(wheel, plan)
        constraints = scratch / "constraints.txt"
        constraints.write_text(
            "".join(f"{pin.name}=={pin.version}\n" for pin in constraining), encoding="utf-8"
        )
        wanted = scratch / "wanted.txt"
        wanted.write_text("\n".join(requires) + "\n", encoding="utf-8")
        pins = []
        if requires:
            pins = pins_of_report(_report(["-r", str(wanted), "-c", str(constraints)], scratch))
        if plan.without_deps:
            extra += pins_of_report(_report(["--no-deps", *plan.without_deps], scratch))
        alone = {normalise(Requirement(line).name) for line in plan.without_deps}
        found = (plan.without - alone) & {pin.name for pin in pins}
        if found:
            raise LockError(
                f"{plan.name}: {', '.join(sorted(found))} came in through another requirement; "
                "name what pulls it under without_deps in locks/plan.toml"
            )
        exempt = plan.without | {pin.name for pin in constraining}
        pins = _with_other_machines(plan, [*pins, *extra], exempt, alone, python, scratch)
    if plan.machines:
        platform_name = f"linux ({', '.join(plan.machines)})"
    header = _HEADER.format(about=plan.about, python=python, platform=platform_name)
    use = _DOWNLOAD if plan.sources else _INSTALL.format(name=plan.name)
    return render([*pins, *plan.sources], f"{header}\n{use}")


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
        print(f"{target.name}: {len(parse(text))} pins", flush=True)
