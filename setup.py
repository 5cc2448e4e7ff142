# SPDX-License-Identifier: Apache-2.0
"""Puts into the package `vllm_ascend` the SoC table, which has one source in the tree's root; and
the operators of stages 1 and 2 into the wheel, where VLLM_BATCH_INVARIANT=1 asks for them.

    COMPILE_CUSTOM_KERNELS=1 VLLM_BATCH_INVARIANT=1 pip install . --no-build-isolation

Here, and only here, that variable is about building: nothing that is installed sets it. The wheel
is the same kind of thing editable or not; `csrc/wheel_with_operators.py` says how it is made.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import setuptools
from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    # A virtual environment of Python 3.11 begins with such a one.
    raise SystemExit(
        f"vllm-ascend: setuptools {setuptools.__version__} is too old: give pip the build"
        " requirements first, pip install 'setuptools>=78.1.1,<81'"
    ) from None

ROOT = Path(__file__).resolve().parent
TABLE = "soc.toml"


def switched_on(variable: str, default: str) -> bool:
    """Whether an environment variable is an integer other than 0, as vLLM reads its own."""
    value = os.environ.get(variable, "").strip() or default
    try:
        return bool(int(value))
    except ValueError:
        raise SystemExit(f"vllm-ascend: {variable}={value!r}: expected 0 or 1") from None


def in_one_line(step: Callable[[], object]) -> None:
    """Runs a step of the build; what it cannot do is the last line of what pip shows."""
    from csrc.stages import StageError
    from vllm_ascend.soc import SocError

    sys.stdout.flush()
    try:
        step()
    except (StageError, SocError, OSError) as error:
        sys.stdout.flush()
        raise SystemExit(f"vllm-ascend: {error}") from None


# COMPILE_CUSTOM_KERNELS is upstream's, where 1 is the default.
WITH_OPERATORS = switched_on("VLLM_BATCH_INVARIANT", "0") and switched_on(
    "COMPILE_CUSTOM_KERNELS", "1"
)
requirements = ["batch_invariant_ops"]
if WITH_OPERATORS:
    if not (ROOT / "csrc").is_dir():
        raise SystemExit(
            f"vllm-ascend: VLLM_BATCH_INVARIANT=1 builds the operators too, and {ROOT} has no csrc:"
            " take the whole source tree, or unset the variable"
        )
    sys.dont_write_bytecode = True  # the source tree may be read-only
    sys.path.insert(0, str(ROOT))
    from csrc import wheel_with_operators

    in_one_line(lambda: wheel_with_operators.check(os.environ))
    requirements = wheel_with_operators.requirements()


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


class Wheel(bdist_wheel):
    """bdist_wheel that records nobody's umask, and adds the operators to what it wrote."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        super().write_wheelfile(wheelfile_base, *arguments)
        # The last step before all of this becomes the archive, modes and all.
        for path in Path(wheelfile_base).parent.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def run(self) -> None:
        super().run()
        if WITH_OPERATORS:
            wheel = Path(self.distribution.dist_files[-1][2])
            in_one_line(lambda: wheel_with_operators.add(wheel, os.environ))


class EditableWheel(editable_wheel):
    """editable_wheel that adds the operators, as files: there is nothing to edit in a library."""

    def run(self) -> None:
        super().run()
        if WITH_OPERATORS:
            (wheel,) = Path(self.dist_dir).glob("*-0.editable-*.whl")
            in_one_line(lambda: wheel_with_operators.add(wheel, os.environ))


# Of the entries in the wheel, where the caller sets none: 1980-01-01, the earliest of a zip file.
os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
# Nothing is built in the source tree: it may be read-only, and a module that was deleted there
# would live on in `build/lib` and come back with the next wheel.
with tempfile.TemporaryDirectory(prefix="vllm-ascend-") as scratch:
    setup(
        install_requires=requirements,
        cmdclass={
            "build_py": BuildWithTable,
            "sdist": SourcesWithTable,
            "bdist_wheel": Wheel,
            "editable_wheel": EditableWheel,
        },
        options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    )
