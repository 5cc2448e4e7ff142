# SPDX-License-Identifier: Apache-2.0
"""Lock files: pip requirement files in which each line is ``name==version`` with sha256 hashes.

A lock names no index: pip takes each file from where the machine's own configuration says, and the
hash decides whether it is the right one. A pin has the hash of each machine's file; one that only
one kind of machine needs ends in a marker.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?: ; platform_machine == \"(?P<machine>[a-z0-9_]+)\")?"
    r"(?P<hashes>(?:\s+--hash=sha256:[0-9a-f]{64})+)$"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class LockError(ValueError):
    """A lock file that cannot be used; the message names file, line and what was expected."""


@dataclass(frozen=True, order=True)
class Pin:
    """One locked distribution: normalised name, exact version, accepted sha256 digests.

    machine     the only one that needs it, as ``platform.machine()`` says it; "" for all
    """

    name: str
    version: str
    sha256: tuple[str, ...]
    machine: str = ""

    def render(self) -> str:
        """The requirement-file form, one hash a line."""
        marker = f' ; platform_machine == "{self.machine}"' if self.machine else ""
        lines = [f"{self.name}=={self.version}{marker}"]
        lines += [f"    --hash=sha256:{digest}" for digest in self.sha256]
        return " \\\n".join(lines)


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 normalises it (``Foo_Bar.baz`` → ``foo-bar-baz``)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str, where: str = "lock file") -> tuple[Pin, ...]:
    """The pins of a lock file's text, in the file's order.

    Raises LockError for a line that is not an exact pin with at least one hash (an option, a URL,
    a range, another marker), and for a name that occurs twice.
    """
    pins: dict[str, Pin] = {}
    pending = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not pending and (not line or line.startswith("#")):
            continue
        pending = f"{pending} {line.removesuffix(chr(92)).strip()}".strip()
        if line.endswith("\\"):
            continue
        match = _PIN.match(pending)
        if match is None:
            raise LockError(
                f"{where}:{number}: expected 'name==version --hash=sha256:…', found "
                f"{pending!r}; make the file anew with scripts/lock"
            )
        digests = tuple(_HASH.findall(match["hashes"]))
        pin = Pin(normalise(match["name"]), match["version"], digests, match["machine"] or "")
        if pin.name in pins:
            raise LockError(f"{where}:{number}: {pin.name} is pinned twice")
        pins[pin.name] = pin
        pending = ""
    if pending:
        raise LockError(f"{where}: the last line ends in a continuation")
    return tuple(pins.values())


def read(path: Path) -> tuple[Pin, ...]:
    """A lock file's pins for this machine; LockError also where it doesn't exist or holds none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LockError(f"{path} is missing; make it with scripts/lock") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(
            f"{path} cannot be read ({error}); make it anew with scripts/lock"
        ) from None
    pins = parse(text, str(path))
    if not pins:
        raise LockError(f"{path} pins nothing; make it anew with scripts/lock")
    return tuple(pin for pin in pins if pin.machine in ("", platform.machine()))


def by_name(pins: Iterable[Pin]) -> Mapping[str, Pin]:
    """The pins keyed by normalised name."""
    return {pin.name: pin for pin in pins}


def render(pins: Iterable[Pin], header: str) -> str:
    """A lock file's text: the header as comments, then the pins sorted by name."""
    comment = "".join(f"# {line}".rstrip() + "\n" for line in header.strip().splitlines())
    return comment + "\n" + "".join(pin.render() + "\n" for pin in sorted(pins))
