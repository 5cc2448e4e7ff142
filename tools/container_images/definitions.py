# SPDX-License-Identifier: Apache-2.0
"""The text of each image's Containerfile, from recipes/images/Containerfile.template.

One image for each NPU of soc.toml on each of CANN's distributions, and one for `cpu`.
"""

from __future__ import annotations

import json
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend import soc

TREE = Path(__file__).resolve().parents[2]
IMAGES = TREE / "recipes" / "images"
SCHEMA = 1
OPERATORS = "/opt/vllm-ascend/share/ascend/opp/vendors/batch_invariant"
_CONTINUED = " \\\n    && "


class DefinitionError(RuntimeError):
    """The definitions cannot be made; one line says why."""


class _Template(string.Template):
    """`%{name}` is filled in: `${name}` is the Containerfile's own."""

    delimiter = "%"


@dataclass(frozen=True)
class Image:
    """One image: the folder that its definitions lie in, and what its template is filled with."""

    name: str
    values: Mapping[str, str]

    def containerfile(self, template: str) -> str:
        """The text of the Containerfile.

        Raises:
            DefinitionError: the template asks for something that nobody gives.
        """
        try:
            return _Template(template).substitute(self.values)
        except (KeyError, ValueError) as error:
            raise DefinitionError(f"Containerfile.template: cannot fill in {error}") from error


def _table(path: Path) -> dict[str, Any]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    if table.get("schema") != SCHEMA:
        raise DefinitionError(f"{path}: expected schema {SCHEMA}, found {table.get('schema')!r}")
    return table


def _packages(distribution: Mapping[str, Any], step: str) -> str:
    """The shell command that installs the packages of a step, `build` or `run`."""
    install = distribution["install"]
    commands = [distribution["update"], f"{install} {' '.join(distribution[step])}"]
    if python := distribution[f"python_{step}"]:
        commands.append(f"{{ command -v python3.11 >/dev/null || {install} {' '.join(python)}; }}")
    return _CONTINUED.join([*commands, distribution["clean"]])


def _image(row: soc.Soc, key: str, distribution: Mapping[str, Any], version: str) -> Image:
    entrypoint = ["/opt/vllm-ascend/bin/with-cann", "vllm"] if row.is_npu else ["vllm"]
    # CANN's tags have the run package's labels in lower case.
    base = distribution["base"].format(chip=row.label.lower(), cann=row.min_cann)
    return Image(
        f"{row.name}-{key}",
        {
            "soc": row.name,
            "product": row.product if row.is_npu else "any CPU",
            "distribution": distribution["title"],
            "base": base,
            "version": version,
            "build_packages": _packages(distribution, "build"),
            "run_packages": _packages(distribution, "run"),
            "user": distribution["user"],
            # Huawei's operators, which no build downloads. For cpu all is in the tree.
            "downloads": "COPY build/wheels /downloads\n" if row.is_npu else "",
            # For Huawei's extension, which does not look beside its Python.
            "environment": f"ENV ASCEND_CUSTOM_OPP_PATH={OPERATORS}\n" if row.is_npu else "",
            "entrypoint": json.dumps(entrypoint),
        },
    )


def images() -> list[Image]:
    """Every image, those of an NPU first.

    Raises:
        DefinitionError: images.toml is of another schema.
    """
    distributions = _table(IMAGES / "images.toml")["distribution"]
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [
        _image(row, key, distribution, project["version"])
        for row in soc.rows()
        for key, distribution in distributions.items()
        if distribution["npu"] == row.is_npu
    ]
