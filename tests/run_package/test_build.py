# SPDX-License-Identifier: Apache-2.0
"""A staged tree becomes one file, the same bytes wherever and by whomever it is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from csrc.run_package import build as packager
from vllm_ascend import soc

from .conftest import ARCH, ROOT, Packages, elf, run_package, stage

CPU = soc.resolve("cpu")


def command(tree: Path, output: Path, *arguments: str, **how: object) -> str:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "csrc.run_package.build", "--tree", str(tree)),
            *("--soc", "cpu", "--output", str(output), *arguments),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TZ": str(how.pop("tz", "UTC"))},
        capture_output=True,
        text=True,
        **how,  # type: ignore[call-overload]
    )
    return str(done.stdout or done.stderr)


def test_name_states_label_version_and_processor(packages: Packages) -> None:
    name = f"cann-ops-batch_invariant-cpu-0.1.0-linux.{ARCH}.run"
    assert packages.first.path.name == name
    assert f"-910b-0.1.0-linux.{ARCH}.run" in packages.other_soc.path.name
    assert os.access(packages.first.path, os.X_OK)


def test_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for place, umask, zone in (("a", 0o022, "UTC"), ("another place", 0o077, "Asia/Shanghai")):
        base = tmp_path / place
        base.mkdir()
        tree = stage(base / "tree")
        if umask == 0o077:
            for path in (tree, *tree.rglob("*")):
                path.chmod(0o700)
                os.utime(path, (1, 1))
        printed = command(tree, base, cwd=base, umask=umask, tz=zone)
        made.append(Path(printed.strip()).read_bytes())
    assert made[0] == made[1]
    different = tmp_path / "different"
    different.mkdir()
    tree = stage(different / "tree", seed=2)
    assert Path(command(tree, different).strip()).read_bytes() != made[0]


def test_nothing_of_the_machine_is_recorded(tmp_path: Path) -> None:
    built = packager.build(stage(tmp_path / "tree"), CPU, tmp_path, version="0.1.0")
    data = built.path.read_bytes()
    assert str(tmp_path).encode() not in data
    assert str(ROOT).encode() not in data


def test_version_info_states_what_it_is(packages: Packages, tmp_path: Path) -> None:
    assert run_package(packages.first.path, f"--install-path={tmp_path}").returncode == 0
    text = (tmp_path / "vendors/batch_invariant/version.info").read_text()
    fields = dict(line.split("=", 1) for line in text.splitlines())
    assert fields == {
        "package": "cann-ops-batch_invariant",
        "version": "0.1.0",
        "soc": "cpu",
        "label": "cpu",
        "os": "linux",
        "arch": ARCH,
        "abi": "1",
    }


def test_default_version_is_that_of_the_tree(tmp_path: Path) -> None:
    expected = (ROOT / "csrc/VERSION").read_text().strip()
    assert f"-cpu-{expected}-linux" in command(stage(tmp_path / "tree"), tmp_path)


def test_links_in_the_tree_are_packed_as_files(tmp_path: Path) -> None:
    tree = stage(tmp_path / "tree")
    (tree / "op_api/lib/liboptiling.so").symlink_to("libcust_opapi.so")
    built = packager.build(tree, CPU, tmp_path, version="0.1.0")
    assert "op_api/lib/liboptiling.so" in built.files
    (tree / "op_api/lib/libelsewhere.so").symlink_to("/etc/hostname")
    with pytest.raises(packager.PackageError, match=r"libelsewhere\.so: expected a file inside"):
        packager.build(tree, CPU, tmp_path, version="0.1.0")


def test_link_to_a_directory_is_refused_not_dropped(tmp_path: Path) -> None:
    tree = stage(tmp_path / "tree")
    (tree / "op_api/also").symlink_to("lib")
    with pytest.raises(packager.PackageError, match="op_api/also: expected a file"):
        packager.build(tree, CPU, tmp_path, version="0.1.0")


@pytest.mark.parametrize("name", ["a name", "ünïcode", "-dash", "back\\slash", "new\nline"])
def test_names_the_installer_could_not_read_are_refused(tmp_path: Path, name: str) -> None:
    tree = stage(tmp_path / "tree")
    (tree / name).write_text("x")
    with pytest.raises(packager.PackageError, match="in a name"):
        packager.build(tree, CPU, tmp_path, version="0.1.0")


def test_what_is_not_a_library_of_a_known_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(packager.PackageError, match=r"has no op_api/lib/libcust_opapi\.so"):
        packager.build(tmp_path, CPU, tmp_path, version="0.1.0")
    tree = stage(tmp_path / "tree")
    with pytest.raises(packager.PackageError, match="the package is to be for sparc"):
        packager.build(tree, CPU, tmp_path, version="0.1.0", arch="sparc")
    (tree / packager.LIBRARY).write_bytes(b"not ELF, but long enough to look")
    with pytest.raises(packager.PackageError, match="not a shared library"):
        packager.build(tree, CPU, tmp_path, version="0.1.0")
    (tree / packager.LIBRARY).write_bytes(elf(ARCH, 100, 1)[:18] + b"\x08\x00" + bytes(99))
    with pytest.raises(packager.PackageError, match="unknown processor"):
        packager.build(tree, CPU, tmp_path, version="0.1.0")


def test_staged_file_may_not_take_a_name_of_the_packages_own(tmp_path: Path) -> None:
    tree = stage(tmp_path / "tree")
    (tree / "version.info").write_text("version=9\n")
    with pytest.raises(packager.PackageError, match=r"version\.info is written by the package"):
        packager.build(tree, CPU, tmp_path, version="0.1.0")


@pytest.mark.parametrize("version", ["", "v1", "1'; rm -rf x", "0.1 0"])
def test_a_version_that_is_none_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(packager.PackageError, match="expected something like"):
        packager.build(stage(tmp_path / "tree"), CPU, tmp_path, version=version)


def test_command_fails_with_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    assert command(tmp_path / "none", tmp_path).count("\n") == 1
    tree = stage(tmp_path / "tree")
    assert "No such file" in command(tree, tmp_path / "missing")
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
