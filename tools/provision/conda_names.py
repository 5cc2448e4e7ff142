# SPDX-License-Identifier: Apache-2.0
"""Say in conda's words what a wheel says in Python's: names, versions, requirements.

The names are conda-forge's, so that a recipe solves against either channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from provision.lockfile import normalise

# Distribution (normalised) → conda-forge's package, where the two differ. conda-forge keeps an
# underscore where the project was first packaged with one.
_NAMES: Mapping[str, str] = {
    "huggingface-hub": "huggingface_hub",
    "oss-harmony": "openai-harmony",
    "prometheus-client": "prometheus_client",
    "torch": "pytorch",
    "typing-extensions": "typing_extensions",
}


class UntranslatableError(ValueError):
    """A requirement that has no conda counterpart; the message names it and what asks for it."""


def conda_name(distribution: str) -> str:
    """conda-forge's name of a distribution: ``torch`` → ``pytorch``, else the normalised name."""
    name = normalise(distribution)
    return _NAMES.get(name, name)


def split_local(version: str) -> tuple[str, str | None]:
    """A version without its local part, and the local part: ``2.13.0+cpu`` → (2.13.0, cpu).

    conda would read the local part as something newer than the release; it goes into the build
    string.
    """
    parsed = Version(version)
    return parsed.public, parsed.local


def version_spec(specifiers: SpecifierSet) -> str:
    """A conda version constraint (``""`` for any) with the meaning of a PEP 440 specifier set."""
    parts = []
    for specifier in sorted(specifiers, key=str):
        operator, version = specifier.operator, specifier.version
        if operator == "===":
            operator = "=="
        if operator in ("==", "!=") and version.endswith(".*"):
            # conda-build warns of ">=1.2.*" forms, but "1.2.*" and "!=1.2.*" are its own.
            parts.append(version if operator == "==" else f"!={version}")
        else:
            parts.append(f"{operator}{split_local(version)[0]}")
    return ",".join(parts)


def match_spec(requirement: Requirement) -> str:
    """The conda match spec of a requirement, its marker and extras left aside.

    A local version (``torch==2.13.0+cpu``) becomes a build string that begins with the local part.
    """
    name = conda_name(requirement.name)
    version = version_spec(requirement.specifier)
    local = {
        part
        for specifier in requirement.specifier
        if specifier.operator == "=="
        and not specifier.version.endswith(".*")
        and (part := split_local(specifier.version)[1])
    }
    if len(local) > 1:
        raise UntranslatableError(f"{requirement}: more than one local version")
    if local:
        return f"{name} {version} {local.pop()}*"
    return f"{name} {version}".strip()


@dataclass(frozen=True)
class Target:
    """What markers are evaluated for: one interpreter on one platform."""

    python_full_version: str
    platform_machine: str

    def environment(self, extra: str) -> dict[str, str]:
        """The marker variables, with ``extra`` as asked for."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.python_full_version,
            "os_name": "posix",
            "platform_machine": self.platform_machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.python_full_version,
            "python_version": ".".join(self.python_full_version.split(".")[:2]),
            "sys_platform": "linux",
            "extra": extra,
        }


def _applies(marker: Marker | None, target: Target, extras: Iterable[str]) -> bool:
    if marker is None:
        return True
    return any(marker.evaluate(target.environment(extra)) for extra in ("", *sorted(extras)))


def dependencies(
    requires: Callable[[str], Iterable[str]],
    distribution: str,
    target: Target,
    *,
    present: Callable[[str], bool],
    left_out: Iterable[str],
) -> tuple[str, ...]:
    """The conda dependencies a distribution's metadata states, sorted.

    requires    gives a distribution's ``Requires-Dist`` lines
    present     whether a distribution is in the lock
    left_out    distributions known not to be needed: a requirement on one that the lock doesn't
                hold is dropped

    conda has no extras: a requirement ``a[x]`` gives ``a`` and what ``a`` requires for ``x``.
    Raises UntranslatableError for a requirement that is neither present nor left out.
    """
    dropped = set(map(normalise, left_out))
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()

    def visit(name: str, extras: frozenset[str], base: bool) -> None:
        for line in requires(name):
            requirement = Requirement(line)
            marker = requirement.marker
            if not _applies(marker, target, extras):
                continue
            # For the sake of an extra, only what the extra adds is wanted.
            if not base and _applies(marker, target, ()):
                continue
            other = normalise(requirement.name)
            if not present(other):
                if other in dropped:
                    continue
                raise UntranslatableError(
                    f"{name} requires {requirement}, which the lock does not hold; add it with "
                    "scripts/lock, or to `without` in locks/plan.toml if it is not needed"
                )
            if other != normalise(distribution):
                found.add(match_spec(requirement))
            for extra in requirement.extras:
                if (other, extra) not in seen:
                    seen.add((other, extra))
                    visit(other, frozenset({extra}), base=False)

    visit(distribution, frozenset(), base=True)
    return tuple(sorted(found))
