# SPDX-License-Identifier: Apache-2.0
"""The CANN of a directory or of the environment: version, machine and path.

CANN's installer leaves descriptions of several kinds:

    ascend_toolkit_install.info   key=value lines, among them version, arch, path
    version.cfg                   <component>_running_version=[<internal>:<version>]
    version.info                  key=value lines, among them version_dir or Version
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from .soc_table import Soc, SocError

VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
"""What CANN's set_env.sh sets to its directory, the newer name first."""

INSTALLED = ("usr/local/Ascend/cann", "usr/local/Ascend/ascend-toolkit/latest")
"""Where CANN's installer puts it by default, for root; below the home directory otherwise."""

INFO = "ascend_toolkit_install.info"
MACHINES = ("x86_64", "aarch64")

_VERSION = re.compile(r"[0-9]+(?:\.[0-9A-Za-z]+)+(?:[-+.][0-9A-Za-z.]+)?")
# A component's own number, as 7.6.0.1.220 is for CANN 8.0.0.
_INTERNAL = re.compile(r"[0-9]+(?:\.[0-9]+){4,}")
_RUNNING = re.compile(r"\s*(\w+)_running_version\s*=\s*\[[^\]:]*:([^\]]*)\]\s*")
_LARGEST = 1 << 20  # bytes; the real ones have less than one thousand


class CannError(SocError):
    """No CANN, or one that does not fit; the message is one line for a person."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cann:
    """An installed CANN.

    Attributes:
        version: as CANN spells it: `9.1.0`, `8.2.RC1`, `9.1.0-beta.1`.
        arch: `uname -m` of the machine it is for; "" where nothing says so.
        path: its directory, that which ASCEND_HOME_PATH names.
    """

    version: str
    arch: str
    path: str


def order(version: str) -> tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]:
    """A key that puts CANN's versions in order: `9.1.0-beta.1` < `9.1.0`, `8.2.RC1` < `8.2.0`."""
    release = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    rest = re.findall(r"[0-9]+|[A-Za-z]+", version[release.end() :] if release else version)
    words = ((p.isdecimal(), int(p) if p.isdecimal() else 0, p.lower()) for p in rest)
    return tuple(numbers), not rest, tuple(words)


def require(cann: Cann, soc: Soc, machine: str | None = None) -> None:
    """Checks that a CANN does for a SoC on a machine, this one's kind by default.

    Raises:
        CannError: it is older than the SoC needs, or for another machine.
    """
    machine = machine or platform.machine()
    if cann.arch and cann.arch != machine:
        raise CannError(
            f"CANN at {cann.path} is for {cann.arch}; expected one for {machine}: install CANN's"
            f" package for {machine}"
        )
    if soc.min_cann and order(cann.version) < order(soc.min_cann):
        raise CannError(
            f"CANN {cann.version} at {cann.path} is too old for {soc.name}; expected"
            f" {soc.min_cann} or newer: install one and source its set_env.sh"
        )


def find(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Cann:
    """The CANN of the environment, else the one where the installer puts it.

    Raises:
        CannError: there is none, or a variable names a directory that holds none.
    """
    environ = os.environ if environ is None else environ
    for variable in VARIABLES:
        value = environ.get(variable)
        if value:
            try:
                return read(Path(value))
            except CannError as error:
                raise CannError(f"{variable}: {error}") from error
    opp = environ.get("ASCEND_OPP_PATH")
    places = [Path(opp).parent] if opp else []
    places += [root / place for place in INSTALLED]
    if environ.get("HOME"):
        places += [
            Path(environ["HOME"]) / Path(place).relative_to("usr/local") for place in INSTALLED
        ]
    for place in places:
        if place.is_dir():
            return read(place)
    raise CannError(
        f"CANN was not found: {' and '.join(VARIABLES)} are not set and there is none at"
        f" {root / INSTALLED[0]}; source CANN's set_env.sh or give its directory"
    )


def sign(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """What says that CANN is on this machine, as the beginning of a sentence; None: nothing."""
    for variable in VARIABLES:
        if environ.get(variable):
            return f"CANN is set up ({variable})"
    folder = root / "usr/local/Ascend"
    return f"CANN is installed ({folder})" if folder.is_dir() else None


def read(path: Path) -> Cann:
    """The CANN that a directory holds, or that a file describes.

    A directory is CANN's own (`cann-9.1.0`, `ascend-toolkit/8.2.RC1`, its `<arch>-linux`) or the
    one above it, with `cann` or `latest` in it.

    Raises:
        CannError: nothing there describes a CANN.
    """
    path = path.absolute()
    if path.is_dir():
        incomplete = None
        for folder in (path, path / "cann", path / "latest", path / "ascend-toolkit/latest"):
            for file in _descriptions(folder):
                found = _described(_text(file))
                if found is not None:
                    arch = found.arch or _machine_of(file.parent) or _machine_of(folder)
                    return dataclasses.replace(found, arch=arch, path=str(folder))
                incomplete = incomplete or file
        if incomplete is not None:
            raise CannError(
                f"expected CANN's version in {incomplete}, found none: the file is cut off or"
                " incomplete; install that CANN again, or give another's directory"
            )
        raise CannError(
            f"expected CANN in {path}, found neither {INFO} nor version.cfg nor version.info:"
            " source CANN's set_env.sh or give its directory"
        )
    found = _described(_text(path))
    if found is None:
        raise CannError(
            f"expected the description of a CANN in {path}, found no version: give {INFO},"
            " version.cfg, version.info or CANN's directory"
        )
    folder = path.parent
    return dataclasses.replace(
        found,
        arch=found.arch or _machine_of(Path(found.path) if found.path else folder),
        path=found.path or str(folder),
    )


def _descriptions(folder: Path) -> Iterator[Path]:
    """The descriptions in a CANN's directory, the best first."""
    inner = [folder, *sorted(folder.glob("*-linux"))]
    parts = ("", "toolkit", "share/info/toolkit", "compiler", "runtime", "opp")
    candidates = [
        *(place / INFO for place in inner),
        *(place / "version.cfg" for place in inner),
        *(place / part / "version.info" for place in inner for part in parts),
    ]
    yield from (candidate for candidate in candidates if candidate.is_file())


def _machine_of(folder: Path) -> str:
    """The machine that a directory's path or its `<arch>-linux` says; "" where none or both do."""
    for part in reversed(folder.parts):
        if part.removesuffix("-linux") in MACHINES and part.endswith("-linux"):
            return part.removesuffix("-linux")
    inside = [machine for machine in MACHINES if (folder / f"{machine}-linux").is_dir()]
    return inside[0] if len(inside) == 1 else ""


def _text(file: Path) -> str:
    """The beginning of a file.

    Raises:
        CannError: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            return opened.read(_LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise CannError(f"{file} cannot be read: {error.strerror}") from error


def _described(text: str) -> Cann | None:
    """What the text of a description says; None without a version."""
    lines = text.splitlines()
    fields = {
        key.strip().lower(): value.strip()
        for key, equals, value in (line.partition("=") for line in lines)
        if equals
    }
    running = {match[1]: match[2].strip() for line in lines if (match := _RUNNING.fullmatch(line))}
    if running:
        versions = {running["toolkit"]} if "toolkit" in running else set(running.values())
        candidates = versions if len(versions) == 1 else set()
    else:
        candidates = {fields.get("version_dir") or fields.get("version") or ""}
    for version in candidates:
        if _VERSION.fullmatch(version) and not _INTERNAL.fullmatch(version):
            return Cann(version, fields.get("arch", ""), fields.get("path", ""))
    return None
