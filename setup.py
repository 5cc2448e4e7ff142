# SPDX-License-Identifier: Apache-2.0
"""Puts the SoC table, which has one source in the tree's root, into the package `vllm_ascend`."""

import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TABLE = "soc.toml"


class BuildWithTable(build_py):
    """build_py that adds soc.toml beside vllm_ascend/soc.

    An editable installation needs no copy: there the module finds the table in the root.
    """

    def _copy(self) -> Path:
        return Path(self.build_lib) / "vllm_ascend" / TABLE

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.mkpath(str(self._copy().parent))
            self.copy_file(TABLE, str(self._copy()))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = list(super().get_outputs(include_bytecode))
        return outputs if self.editable_mode else [*outputs, str(self._copy())]


class SourcesWithTable(sdist):
    """sdist that carries soc.toml, without which the source archive would not build."""

    def add_defaults(self) -> None:
        super().add_defaults()
        self.filelist.append(TABLE)


# Nothing is built in the source tree: it may be read-only, and a module that was deleted there
# would live on in `build/lib` and come back with the next wheel.
with tempfile.TemporaryDirectory(prefix="vllm-ascend-") as scratch:
    setup(
        cmdclass={"build_py": BuildWithTable, "sdist": SourcesWithTable},
        options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    )
