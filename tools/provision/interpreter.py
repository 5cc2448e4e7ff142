# SPDX-License-Identifier: Apache-2.0
"""Package the running CPython 3.11 as conda's ``python``.

A build of pyenv or python.org keeps its library where conda expects it and only needs copying.
Debian's interpreter differs in two ways outside a virtual environment:

- ``site`` looks in ``dist-packages``. It is frozen into the executable, so that no file beside it
  changes that; the copy gets a link of that name to its ``site-packages``.
- ``sysconfig`` installs below ``local/``. The copy is given back upstream's choice, at a place that
  must be found exactly once: a Debian that changes it is an error here, not a broken prefix.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from provision.conda_package import Entry

# Not needed to run or to build an extension, or rebuilt where it is: 60 of 80 MB.
_LEFT_OUT_FOLDERS = frozenset(
    {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo"}
)
# The system's own settings, which mustn't follow a copy around.
_LEFT_OUT_FILES = frozenset({"sitecustomize.py", "EXTERNALLY-MANAGED"})

# The definitions after this line take their default arguments from what it chooses.
_SYSCONFIG_ANCHOR = "def get_preferred_scheme(key):\n"
_SYSCONFIG_RULE = '''
def _get_preferred_schemes():
    """Upstream's schemes for POSIX, for this relocated copy."""
    return {"prefix": "posix_prefix", "home": "posix_home", "user": "posix_user"}


'''
_RELOCATION = """

# Relocated: what names the prefix of the build names that of the running interpreter.
import sys as _sys

_BUILT_FOR = {old!r}
_ANYWHERE = {anywhere!r}


def _relocated(value):
    if not isinstance(value, str):
        return value
    if _ANYWHERE:
        return value.replace(_BUILT_FOR, _sys.base_prefix)
    if value == _BUILT_FOR or value.startswith(_BUILT_FOR + "/"):
        return _sys.base_prefix + value[len(_BUILT_FOR):]
    return value


build_time_vars = {{key: _relocated(value) for key, value in build_time_vars.items()}}
"""
# Prefixes too short to be replaced inside a longer value ("-I/usr/include" isn't the prefix's).
_SYSTEM_PREFIXES = ("/", "/usr", "/usr/local")


class InterpreterError(RuntimeError):
    """This interpreter can't be packaged; one line says why."""


def insert_before(text: str, anchor: str, addition: str, where: str) -> str:
    """``text`` with ``addition`` before ``anchor``, which must occur exactly once."""
    if text.count(anchor) != 1:
        raise InterpreterError(
            f"{where} of this Python is not laid out as expected ({anchor.splitlines()[0]!r} "
            f"occurs {text.count(anchor)} times); use a pyenv or python.org build of Python 3.11"
        )
    return text.replace(anchor, addition + anchor)


@dataclass(frozen=True)
class Interpreter:
    """Where the base interpreter (not a virtual environment's) keeps its parts."""

    executable: Path
    prefix: Path
    stdlib: Path
    include: Path
    config_header: Path
    version: str

    @property
    def short(self) -> str:
        """``3.11``."""
        return ".".join(self.version.split(".")[:2])

    @property
    def has_headers(self) -> bool:
        """Whether an extension module can be compiled."""
        return (self.include / "Python.h").is_file() and self.config_header.is_file()


def running() -> Interpreter:
    """The interpreter this process runs on, seen through any virtual environment."""
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return Interpreter(
        executable=Path(os.path.realpath(executable)),
        prefix=Path(sys.base_prefix),
        stdlib=Path(sysconfig.get_path("stdlib", "posix_prefix")),
        include=Path(sysconfig.get_path("include", "posix_prefix")),
        config_header=Path(sysconfig.get_config_h_filename()),
        version=".".join(map(str, sys.version_info[:3])),
    )


def _stdlib_files(interpreter: Interpreter) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(interpreter.stdlib):
        folders[:] = sorted(
            name
            for name in folders
            # "config-3.11-<triplet>" holds the static library.
            if name not in _LEFT_OUT_FOLDERS and not name.startswith("config-")
        )
        for name in sorted(files):
            if name not in _LEFT_OUT_FILES and not name.endswith((".pyc", ".a")):
                path = Path(folder) / name
                yield path.relative_to(interpreter.stdlib).as_posix(), path


def _header_files(interpreter: Interpreter) -> Iterator[tuple[str, Path]]:
    if not interpreter.has_headers:
        return
    for path in sorted(interpreter.include.rglob("*.h")):
        relative = path.relative_to(interpreter.include).as_posix()
        # Debian's is a wrapper that includes the one of the machine's architecture.
        yield relative, interpreter.config_header if relative == "pyconfig.h" else path


def identity(interpreter: Interpreter) -> str:
    """A digest that changes when the interpreter or a file of its library does."""
    digest = hashlib.sha256(interpreter.version.encode())
    digest.update(interpreter.executable.read_bytes())
    for relative, path in (*_stdlib_files(interpreter), *_header_files(interpreter)):
        status = path.stat()
        digest.update(f"{relative}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def looks_in_dist_packages(interpreter: Interpreter) -> bool:
    """Whether this is Debian's ``site``."""
    return "dist-packages" in (interpreter.stdlib / "site.py").read_text(encoding="utf-8")


def cured(relative: str, data: bytes, prefix: str) -> bytes:
    """A file of the standard library as the relocated copy needs it; most are left alone."""
    if relative == "sysconfig.py":
        text = data.decode()
        if "posix_local" in text:
            return insert_before(text, _SYSCONFIG_ANCHOR, _SYSCONFIG_RULE, relative).encode()
    elif re.fullmatch(r"_sysconfigdata_.*\.py", relative):
        anywhere = prefix not in _SYSTEM_PREFIXES
        return data + _RELOCATION.format(old=prefix, anywhere=anywhere).encode()
    return data


def _shared_library(interpreter: Interpreter, patchelf: str) -> Path | None:
    """libpython, if the executable needs one."""
    needed = subprocess.run(
        [patchelf, "--print-needed", str(interpreter.executable)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    names = [name for name in needed if name.startswith("libpython")]
    if not names:
        return None
    for folder in (interpreter.prefix / "lib", Path(sysconfig.get_config_var("LIBDIR") or "/")):
        if (folder / names[0]).is_file():
            return folder / names[0]
    raise InterpreterError(
        f"{interpreter.executable} needs {names[0]}, which is not in {interpreter.prefix / 'lib'}"
    )


def _relocatable(binary: Path, patchelf: str) -> bytes:
    """A binary that looks for its libraries in the ``lib`` beside its folder."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(binary, folder))
        copy.chmod(0o755)
        subprocess.run(
            [patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(copy)], check=True
        )
        return copy.read_bytes()


def entries(interpreter: Interpreter, patchelf: str) -> Iterator[Entry]:
    """The files of the package ``python``."""
    short = interpreter.short
    library = _shared_library(interpreter, patchelf)
    if library is None:
        yield Entry(f"bin/python{short}", interpreter.executable.read_bytes(), executable=True)
    else:
        binary = _relocatable(interpreter.executable, patchelf)
        yield Entry(f"bin/python{short}", binary, executable=True)
        yield Entry(f"lib/{library.name}", library.read_bytes(), executable=True)
        if library.name != f"libpython{short}.so":
            yield Entry(f"lib/libpython{short}.so", link=library.name)
    yield Entry("bin/python", link=f"python{short}")
    yield Entry("bin/python3", link=f"python{short}")
    root = f"lib/python{short}"
    for relative, path in _stdlib_files(interpreter):
        data = cured(relative, path.read_bytes(), str(interpreter.prefix))
        yield Entry(f"{root}/{relative}", data, executable=os.access(path, os.X_OK))
    yield Entry(f"{root}/site-packages/README.txt", b"Third-party packages of this prefix.\n")
    if looks_in_dist_packages(interpreter):
        yield Entry(f"{root}/dist-packages", link="site-packages")
    for relative, path in _header_files(interpreter):
        yield Entry(f"include/python{short}/{relative}", path.read_bytes())
