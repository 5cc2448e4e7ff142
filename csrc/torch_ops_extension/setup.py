# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel batch_invariant_ops: a Python package and one library that registers the
operators with PyTorch.

The library uses PyTorch's C++ interface and not Python's, so one wheel serves every Python; it is
bound to the minor version of torch it was built against, which its metadata says. The same source,
compiler and torch give the same bytes: neither the time, the umask nor a path of the build is
recorded.

Environment: CXX, CXXFLAGS, LDFLAGS, and MAX_JOBS (compilers at a time; default: all cores).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
TORCH = Path(torch.__file__).resolve().parent
# Dates in the wheel where the caller sets none: 1980-01-01, the earliest a zip file can say.
EARLIEST_ZIP_DATE = "315532800"
COMPILE_FLAGS = [
    *("-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", "-fvisibility=hidden"),
    *(f"-ffile-prefix-map={HERE}=.", f"-ffile-prefix-map={TORCH}=torch"),
    f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    *("-isystem", str(TORCH / "include")),
    *("-isystem", str(TORCH / "include/torch/csrc/api/include")),
]
# No search path for c10 and torch_cpu: the process that imported torch has them already.
LINK_FLAGS = [
    *("-L" + str(TORCH / "lib"), "-lc10", "-ltorch_cpu"),
    *("-Wl,-z,defs", "-Wl,--as-needed", "-Wl,-s"),
]


class BuildLibrary(build_ext):
    """Runs the compiler itself: what distutils would add are the flags Python was built with, and
    those may name its prefix."""

    def get_ext_filename(self, fullname: str) -> str:
        *package, name = fullname.split(".")
        return str(Path(*package, "lib", f"lib{name}.so"))

    def build_extension(self, ext: Extension) -> None:
        cxx = [*shlex.split(os.environ.get("CXX", "c++")), "-fPIC", "-fopenmp"]
        if shutil.which(cxx[0]) is None:
            raise SystemExit(f"batch_invariant_ops: no C++ compiler '{cxx[0]}'; set CXX to one")
        compile_flags = [*COMPILE_FLAGS, *shlex.split(os.environ.get("CXXFLAGS", ""))]
        link_flags = [*LINK_FLAGS, *shlex.split(os.environ.get("LDFLAGS", ""))]
        objects = [Path(self.build_temp, Path(source).stem + ".o") for source in ext.sources]
        library = Path(self.get_ext_fullpath(ext.name))
        for directory in (Path(self.build_temp), library.parent):
            directory.mkdir(parents=True, exist_ok=True)

        def run(*command: str | Path) -> None:
            if subprocess.run(command, cwd=HERE).returncode:
                raise SystemExit(f"batch_invariant_ops: failed: {shlex.join(map(str, command))}")

        def compile_one(source: str, target: Path) -> None:
            run(*cxx, *compile_flags, "-c", source, "-o", target)

        with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)) as pool:
            list(pool.map(compile_one, ext.sources, objects))
        run(*cxx, "-shared", *objects, *link_flags, "-o", library)


class AnyPython(bdist_wheel):
    """No part of the wheel depends on Python's own C interface, or on the umask that the tree was
    checked out with."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        super().write_wheelfile(wheelfile_base, *arguments)
        # The last step before all of this becomes the archive, modes and all.
        for path in Path(wheelfile_base).parent.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


os.environ.setdefault("SOURCE_DATE_EPOCH", EARLIEST_ZIP_DATE)
os.umask(0o022)
# Nothing is written into the source tree, which may be read-only.
with tempfile.TemporaryDirectory(prefix="batch_invariant_ops-") as scratch:
    setup(
        ext_modules=[
            Extension(
                "batch_invariant_ops.batch_invariant_ops",
                sources=sorted(str(path.relative_to(HERE)) for path in HERE.glob("src/*.cpp")),
            )
        ],
        install_requires=[f"torch=={'.'.join(torch.__version__.split('.')[:2])}.*"],
        cmdclass={"build_ext": BuildLibrary, "bdist_wheel": AnyPython},
        options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    )
