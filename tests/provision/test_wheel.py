# SPDX-License-Identifier: Apache-2.0
"""A wheel's files go where conda expects them, and its scripts run from wherever that is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from provision.conda_package import Entry
from provision.wheel import Wheel, layout_of

# The fixture make_wheel of conftest.py.
WheelMaker = Callable[..., Path]


def by_path(wheel: Wheel) -> dict[str, Entry]:
    return {entry.path: entry for entry in wheel.entries(layout_of(wheel.noarch, "3.11"))}


def test_a_pure_wheel_is_noarch_and_a_tagged_one_is_not(make_wheel: WheelMaker) -> None:
    pure = Wheel(make_wheel("pure"))
    binary = Wheel(make_wheel("binary", tag="cp311-cp311-manylinux_2_28_x86_64"))
    # Native libraries in a wheel that calls itself pure: the platform tag decides.
    data = Wheel(make_wheel("data", tag="py3-none-manylinux1_x86_64"))
    assert (pure.noarch, binary.noarch, data.noarch) == (True, False, False)
    assert "site-packages/pure/__init__.py" in by_path(pure)
    assert "lib/python3.11/site-packages/binary/__init__.py" in by_path(binary)


def test_data_scripts_and_headers_go_to_their_places(make_wheel: WheelMaker) -> None:
    wheel = Wheel(
        make_wheel(
            "tool",
            files={
                "tool-1.0.data/scripts/run": b"#!python\nprint('run')\n",
                "tool-1.0.data/scripts/elf": b"\x7fELF",
                "tool-1.0.data/data/share/x": b"x",
                "tool-1.0.data/purelib/tool.py": b"",
                "tool-1.0.data/headers/tool.h": b"",
            },
            tag="py3-none-manylinux_2_28_x86_64",
        )
    )
    found = by_path(wheel)
    assert found["bin/run"].executable and found["bin/run"].data.startswith(b"#!/bin/sh\n")
    assert found["bin/elf"].executable and found["bin/elf"].data == b"\x7fELF"
    assert "share/x" in found
    assert "lib/python3.11/site-packages/tool.py" in found
    assert "include/python3.11/tool/tool.h" in found
    info = "lib/python3.11/site-packages/tool-1.0.dist-info"
    assert found[f"{info}/INSTALLER"].data == b"conda\n"


@pytest.mark.parametrize("folder", ["plain", "with spaces", "grüße-路径", "quote'd"])
def test_console_scripts_run_from_any_prefix(
    make_wheel: WheelMaker, tmp_path: Path, folder: str
) -> None:
    wheel = Wheel(
        make_wheel(
            "tool",
            files={
                "tool/__init__.py": b"class C:\n    @staticmethod\n    def go(): print('gone')\n"
            },
            entry_points="[console_scripts]\ngo = tool:C.go\nother = tool:C.go [extra]\n",
        )
    )
    prefix = tmp_path / folder / "bin"
    prefix.mkdir(parents=True)
    (prefix / "python").symlink_to(sys.executable)
    script = prefix / "go"
    script.write_bytes(by_path(wheel)["python-scripts/go"].data)
    script.chmod(0o755)
    done = subprocess.run(
        [script], env={"PYTHONPATH": str(wheel.path), "PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert (done.stdout, done.returncode) == (b"gone\n", 0), done.stderr
    assert wheel.console_scripts == {"go": "tool:C.go", "other": "tool:C.go"}
