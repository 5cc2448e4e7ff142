# SPDX-License-Identifier: Apache-2.0
"""Read a wheel: its metadata, and its files where an installation puts them."""

from __future__ import annotations

import configparser
import email.message
import email.parser
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.tags import parse_tag, sys_tags

from provision import launcher
from provision.conda_package import Entry
from provision.lockfile import normalise

_SCRIPT = """# Runs {module}:{attribute}, a console script of {name}.
import sys

from {module} import {root}

if __name__ == "__main__":
    sys.exit({attribute}())
"""


@dataclass(frozen=True)
class Layout:
    """Where a package keeps what a wheel calls purelib, scripts and headers."""

    site_packages: str
    scripts: str
    include: str


def layout_of(noarch: bool, python: str) -> Layout:
    """The layout of a ``noarch: python`` package, or of one for ``python`` ("3.11")."""
    if noarch:
        return Layout("site-packages", "python-scripts", f"include/python{python}")
    return Layout(f"lib/python{python}/site-packages", "bin", f"include/python{python}")


def is_wheel_name(name: str) -> bool:
    """Whether a file name has the parts of a wheel's (PEP 427)."""
    return name.endswith(".whl") and len(name.removesuffix(".whl").split("-")) in (5, 6)


class Wheel:
    """One wheel file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not is_wheel_name(path.name):
            raise ValueError(f"{path.name} is not a wheel's file name")
        parts = path.name.removesuffix(".whl").split("-")
        self.name = normalise(parts[0])
        self.version = parts[1]
        self._tags = parts[-3:]

    @property
    def noarch(self) -> bool:
        """Whether it holds no binary: any ABI, any platform."""
        return self._tags[1:] == ["none", "any"]

    @property
    def for_this_machine(self) -> bool:
        """Whether this Python can use it here."""
        tags = parse_tag("-".join(self._tags))
        return any(tag in tags for tag in sys_tags())

    @cached_property
    def _dist_info(self) -> str:
        with zipfile.ZipFile(self.path) as archive:
            [name] = {
                top
                for entry in archive.namelist()
                if (top := entry.split("/")[0]).endswith(".dist-info")
            }
        return name

    @cached_property
    def metadata(self) -> email.message.Message:
        """The METADATA file's fields."""
        with zipfile.ZipFile(self.path) as archive:
            data = archive.read(f"{self._dist_info}/METADATA")
        return email.parser.BytesParser().parsebytes(data, headersonly=True)

    @property
    def requires(self) -> tuple[str, ...]:
        """The Requires-Dist lines."""
        return tuple(map(str, self.metadata.get_all("Requires-Dist", ())))

    @property
    def requires_python(self) -> str:
        """The Requires-Python constraint, "" for none."""
        return str(self.metadata.get("Requires-Python", "") or "")

    @property
    def licence(self) -> str:
        """What the metadata states as the licence, in whichever field it does; "" for nothing."""
        expression = str(self.metadata.get("License-Expression", "") or "")
        field = str(self.metadata.get("License", "") or "").strip()
        if expression or (field and "\n" not in field):  # else it is the licence's whole text
            return expression or field
        classifiers = map(str, self.metadata.get_all("Classifier", ()))
        stated = [line.split(" :: ")[-1] for line in classifiers if line.startswith("License ::")]
        return ", ".join(stated)

    @cached_property
    def console_scripts(self) -> dict[str, str]:
        """Console scripts: name → ``module:attribute``."""
        with zipfile.ZipFile(self.path) as archive:
            try:
                text = archive.read(f"{self._dist_info}/entry_points.txt").decode()
            except KeyError:
                return {}
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(text)
        if not parser.has_section("console_scripts"):
            return {}
        # An extra after the name ("[x]") has no meaning at run time.
        return {k: v.split("[")[0].strip() for k, v in parser.items("console_scripts")}

    def entries(self, layout: Layout) -> Iterator[Entry]:
        """Every file at its place below the prefix, console scripts made, sorted by source."""
        data_folder = self._dist_info.removesuffix(".dist-info") + ".data"
        with zipfile.ZipFile(self.path) as archive:
            for info in sorted(archive.infolist(), key=lambda info: info.filename):
                if info.is_dir():
                    continue
                data = archive.read(info)
                executable = bool(info.external_attr >> 16 & 0o111)
                parts = info.filename.split("/")
                if parts[0] == data_folder:
                    scheme, rest = parts[1], "/".join(parts[2:])
                    if scheme == "scripts":
                        yield Entry(
                            f"{layout.scripts}/{rest}", launcher.relocated(data), executable=True
                        )
                        continue
                    folder = {
                        "purelib": layout.site_packages,
                        "platlib": layout.site_packages,
                        "headers": f"{layout.include}/{self.name}",
                        "data": "",
                    }[scheme]
                    yield Entry(f"{folder}/{rest}".lstrip("/"), data, executable)
                    continue
                yield Entry(f"{layout.site_packages}/{info.filename}", data, executable)
        yield Entry(f"{layout.site_packages}/{self._dist_info}/INSTALLER", b"conda\n")
        for name, target in sorted(self.console_scripts.items()):
            module, _, attribute = target.partition(":")
            text = _SCRIPT.format(
                module=module, attribute=attribute, root=attribute.split(".")[0], name=self.name
            )
            yield Entry(
                f"{layout.scripts}/{name}", (launcher.HEAD + text).encode(), executable=True
            )
