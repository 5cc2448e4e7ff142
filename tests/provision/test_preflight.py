# SPDX-License-Identifier: Apache-2.0
"""What a machine lacks is said before anything is made, in one line that says what to type."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from provision import toolchain
from provision.preflight import (
    PreflightError,
    check_folder,
    check_library,
    check_machine,
    check_python,
    failures,
    one_line,
)

ROOT = Path(__file__).parents[2]
BASE = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_another_processor_is_pointed_to_the_other_ways() -> None:
    check_machine("Linux", "x86_64")
    with pytest.raises(PreflightError, match=r"aarch64; use --channel conda-forge"):
        check_machine("Linux", "aarch64")


def test_another_python_and_one_without_venv_are_named() -> None:
    with pytest.raises(PreflightError, match=r"Python 3\.11 is needed, this is 3\.12; set PYTHON"):
        check_python((3, 12), ())
    with pytest.raises(PreflightError, match=r"lacks the module no_such_module;.*python3\.11-venv"):
        check_python((3, 11), ("venv", "no_such_module"))


def test_a_library_that_no_wheel_brings_is_named_with_its_package() -> None:
    check_library("libnuma.so.1", "libnuma1")
    with pytest.raises(PreflightError, match=r"libnone\.so\.7 is needed.* apt install libnone7"):
        check_library("libnone.so.7", "libnone7")


def test_a_full_disk_says_how_much_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9, 9, 10**9))
    check_folder(tmp_path / "not" / "there", 10**9)
    with pytest.raises(PreflightError, match=r"6\.0 GB are needed in .*, 1\.0 GB are free; make"):
        check_folder(tmp_path / "not" / "there", 6 * 10**9)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_says_what_to_do() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/x/y")
    assert one_line(full) == (
        "no space left for /x/y; make room or choose another folder with --state DIR"
    )
    assert one_line(ValueError("as it is")) == "as it is"


def test_a_state_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PreflightError, match="choose another folder with --state DIR"):
        check_folder(tmp_path / "file" / "below", 0)


def test_a_missing_compiler_or_cmake_is_named(tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path)}
    lines = list(
        failures(
            [
                lambda: toolchain.find_compiler("cxx", empty),
                lambda: toolchain.find_cmake(empty),
                lambda: None,
            ]
        )
    )
    assert len(lines) == 2
    assert "no C++ compiler found" in lines[0] and "apt install g++" in lines[0]
    assert "CMake >= 3.25 not found" in lines[1]


def test_a_compiler_that_does_not_run_and_an_old_cmake_are_refused(tmp_path: Path) -> None:
    tool(tmp_path, "g++", "exit 1")
    tool(tmp_path, "cmake", "echo cmake version 3.18.4")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    with pytest.raises(toolchain.ToolchainError, match="does not run; set CXX"):
        toolchain.find_compiler("cxx", environment)
    with pytest.raises(toolchain.ToolchainError, match=r"CMake >= 3\.25 is needed.*is 3\.18\.4"):
        toolchain.find_cmake(environment)
    tool(tmp_path, "cmake", "echo cmake version 4.1.0")
    assert toolchain.find_cmake(environment).version == "4.1.0"


def test_cxx_chooses_the_compiler(tmp_path: Path) -> None:
    tool(tmp_path, "my-cxx", "echo 17.2")
    found = toolchain.find_compiler("cxx", {"CXX": "my-cxx", "PATH": f"{tmp_path}:/bin"})
    assert found == toolchain.Tool(tmp_path / "my-cxx", "17.2")
    with pytest.raises(toolchain.ToolchainError, match=r"looked for absent-cxx"):
        toolchain.find_compiler("cxx", {"CXX": "absent-cxx", "PATH": str(tmp_path)})


@pytest.mark.parametrize("script", ["quickstart", "channel"])
def test_the_scripts_need_nothing_installed_to_say_what_is_missing(
    script: str, tmp_path: Path
) -> None:
    # Isolated from site-packages: what runs before the bootstrap uses the standard library alone.
    code = (
        "import sys, runpy; sys.path[:] = [p for p in sys.path if 'site-packages' not in p];"
        f"sys.path.insert(0, {str(ROOT / 'tools')!r});"
        f"sys.argv = ['x', '--state', {str(tmp_path)!r}];"
        f"runpy.run_module('provision.{script}', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env=BASE | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    lines = done.stderr.splitlines()
    assert [line.split(": ")[0] for line in lines] == [script, script]
    assert "no C++ compiler found" in lines[0] and "CMake >= 3.25 not found" in lines[1]


def test_without_python_3_11_one_line_says_so(tmp_path: Path) -> None:
    for name in ("bash", "dirname", "env"):
        (tmp_path / name).symlink_to(f"/bin/{name}" if name == "bash" else f"/usr/bin/{name}")
    tool(tmp_path, "python3", "exit 1")
    done = subprocess.run(
        [ROOT / "scripts" / "quickstart"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith("quickstart: Python 3.11 is needed") and "set PYTHON" in line


@pytest.mark.parametrize("script", ["quickstart", "channel"])
def test_help_shows_an_example_and_an_unknown_option_is_an_error(script: str) -> None:
    path = ROOT / "scripts" / script
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([path, "--help"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "example:" in done.stdout
    done = subprocess.run([path, "--frob"], env=environment, capture_output=True, text=True)
    assert done.returncode == 3 and "--frob" in done.stderr


@pytest.mark.parametrize("script", ["quickstart", "channel"])
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("PYTHON", "/nowhere/python", "PYTHON=/nowhere/python is not a Python 3.11"),
        ("BI_BUILD", "~nosuchuser/x", "'~nosuchuser/x' cannot be a path here"),
        ("BI_BUILD", "a" * 300, "cannot be a path here"),
        ("CXX", "g++ -O2", "give the compiler alone"),
    ],
)
def test_a_wrong_variable_is_one_line(script: str, variable: str, value: str, says: str) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, variable: value}
    done = subprocess.run(
        [ROOT / "scripts" / script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if says in line]
    assert line.startswith(f"{script}: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--check", "'oops"], "No closing quotation"),
        (["--prefix", "~nosuchuser/x"], "cannot be a path here"),
        (["--prefix", "/tmp/with a blank"], "a folder with a blank in its path"),
        (
            ["--prefix", "/"],
            "/ exists and was not made by quickstart or from a bundle; choose another",
        ),
        (["--prefix", "/proc/version/prefix"], "cannot write to /proc/version; choose another"),
        (["--json", "/tmp"], "--json /tmp: it is a folder"),
    ],
)
def test_a_wrong_argument_of_quickstart_is_one_line(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "quickstart", "--state", tmp_path, *arguments],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("quickstart: ") and says in line
    assert list(tmp_path.iterdir()) == []


def test_a_tool_that_is_no_program_is_one_line(tmp_path: Path) -> None:
    for name in ("cmake", "g++"):
        (tmp_path / name).write_text("not a program\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(toolchain.ToolchainError, match=r"cmake does not run"):
        toolchain.find_cmake({"PATH": str(tmp_path)})
    with pytest.raises(toolchain.ToolchainError, match=r"g\+\+ does not run"):
        toolchain.find_compiler("cxx", {"PATH": str(tmp_path)})
