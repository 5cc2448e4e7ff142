# SPDX-License-Identifier: Apache-2.0
"""The SoC names as an archspec extension, for a Spack that does not take them in memory.

    PYTHONPATH=tools:. python -m cluster.archspec_extension recipes/spack/archspec

writes `<family>/microarchitectures.json` for both families from soc.toml. How to use it is in
recipes/spack/README.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from vllm_ascend import soc as soc_table

# What archspec itself states for the two families.
FLAGS = {
    "x86_64": "-march=x86-64 -mtune=generic",
    "aarch64": "-march=armv8-a -mtune=generic",
}
COMPILERS = ("gcc", "clang", "aocc", "arm", "intel", "oneapi", "dpcpp", "nvhpc")


def extension(family: str) -> dict[str, Any]:
    """The content of `microarchitectures.json` for hosts of this family.

    Raises:
        KeyError: another family than x86_64 or aarch64.
    """
    compilers = {name: [{"versions": ":", "flags": FLAGS[family]}] for name in COMPILERS}
    return {
        "microarchitectures": {
            target: {
                "from": [family],
                "vendor": "generic",
                "features": [row.name],
                "compilers": compilers,
            }
            for row in soc_table.rows()
            for target in row.targets
        }
    }


def write(directory: Path) -> None:
    """Writes the file of each family below `directory`."""
    for family in FLAGS:
        path = directory / family / "microarchitectures.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(extension(family), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    write(parser.parse_args().directory)
