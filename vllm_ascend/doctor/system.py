# SPDX-License-Identifier: Apache-2.0
"""What is looked at. A test gives one made on the spot; by default it is this process's own."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# The root of the source tree, where the doctor runs from one.
_ROOT = Path(__file__).resolve().parents[2]
TREE = _ROOT if (_ROOT / "csrc").is_dir() else None


def _search_path() -> tuple[str, ...]:
    """Where this Python looks for packages, but for the tree that the doctor itself comes from."""
    return tuple(entry for entry in sys.path if TREE is None or Path(entry).resolve() != TREE)


@dataclass(frozen=True)
class System:
    """An environment, a Python and a machine."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    prefix: Path = field(default_factory=lambda: Path(sys.prefix))
    executable: str = sys.executable
    python: str = field(default_factory=platform.python_version)
    search_path: tuple[str, ...] = field(default_factory=_search_path)
    root: Path = Path("/")
    machine: str = field(default_factory=platform.machine)

    def installed(self, name: str) -> list[importlib.metadata.Distribution]:
        """The distributions of that name, the one that Python takes first.

        One that several entries of the search path lead to counts once.
        """
        found: dict[str, importlib.metadata.Distribution] = {}
        for each in importlib.metadata.distributions(name=name, path=list(self.search_path)):
            place = Path(str(each.locate_file("."))).resolve()
            found.setdefault(f"{place} {each.version}", each)
        return list(found.values())

    def version(self, name: str) -> str | None:
        """Version of the distribution that Python takes; None where there is none."""
        return next((each.version for each in self.installed(name)), None)

    def platform_plugins(self) -> dict[str, str]:
        """Distribution → what it gives vLLM as a platform plugin, "name = module:function"."""
        found: dict[str, str] = {}
        for each in importlib.metadata.distributions(path=list(self.search_path)):
            for point in each.entry_points:
                if point.group == "vllm.platform_plugins":
                    label = f"{each.metadata['Name']} {each.version}"
                    found.setdefault(label, f"{point.name} = {point.value}")
        return found

    def which(self, *names: str) -> str | None:
        """The first of the commands that PATH has."""
        path = self.environ.get("PATH", "")
        return next((found for name in names if (found := shutil.which(name, path=path))), None)


def release(version: str) -> str:
    """ "0.32.0+cpu" → "0.32.0": what two versions of one release share."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return found[0] if found else version
