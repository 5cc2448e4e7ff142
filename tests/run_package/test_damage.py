# SPDX-License-Identifier: Apache-2.0
"""A package that isn't what was built is refused before anything is written."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations import mutations
from tests.small_disk import disk_of

from .conftest import Packages, Run, installed, run_package, said, state

TRUNCATIONS = 20


@pytest.fixture
def refused(packages: Packages, tmp_path: Path) -> Iterator[Run]:
    """Runs changed bytes as a package, over an installation, and sees that nothing changes."""
    target, temporary, folder = tmp_path / "opp", tmp_path / "tmp", tmp_path / "package"
    for path in (target, temporary, folder):
        path.mkdir()
    assert run_package(packages.second.path, f"--install-path={target}").returncode == 0
    before = state(target)
    damaged = folder / packages.first.path.name

    def run(data: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
        damaged.write_bytes(data)
        damaged.chmod(0o755)
        if "--uninstall" in arguments:
            arguments = (*arguments, f"--install-path={target}")
        # Through the shell by name, as a damaged first line would start another program.
        result = run_package(
            damaged,
            *(arguments or (f"--install-path={target}",)),
            prefix=("sh",),
            cwd=folder,
            env={"TMPDIR": str(temporary)},
        )
        assert result.returncode != 0, f"accepted: {result.stdout}{result.stderr}"
        assert state(target) == before
        assert list(temporary.iterdir()) == []
        # A wrong byte in `2>&1` or the like names another file for what the script has to say.
        for path in folder.iterdir():
            if path != damaged:
                assert path.stat().st_size < 200, f"{path.name} was written"
                path.unlink()
        return result

    yield run
    # The control: the same bytes unchanged are accepted.
    damaged.write_bytes(packages.first.path.read_bytes())
    assert run_package(damaged, f"--install-path={target}").returncode == 0
    assert state(target) != before


def header_size(data: bytes) -> int:
    """Where the tar.gz begins."""
    end = b"\nexit 1\n}\n"
    return data.index(end) + len(end)


@pytest.mark.parametrize("count", [240, pytest.param(4000, marks=pytest.mark.slow)])
def test_no_mutation_is_accepted(packages: Packages, refused: Run, count: int) -> None:
    """Whatever it is asked to do, it changes nothing and says that it did not do it."""
    actions = ((), (), ("--check",), (), ("--uninstall",), ("--list",), ("--version",))
    made = mutations(packages.first.path.read_bytes(), packages.second.path.read_bytes(), count, 1)
    for number, (_, data) in enumerate(made):
        refused(data, *actions[number % len(actions)])


def test_damaged_script_does_not_start_itself_without_end(packages: Packages, refused: Run) -> None:
    """`head -c 9 |package` for `head -c 9 <package`: one bit."""
    data = packages.first.path.read_bytes()
    places = [found.start() for found in re.finditer(rb'[< ]"\$self"', data[: header_size(data)])]
    assert len(places) > 5
    for place in places:
        for separator in (b"|", b";", b"&", b"\n"):
            result = refused(data[:place] + separator + data[place + 1 :])
            assert "damaged" in result.stderr or "self" in result.stderr, result.stderr


def test_damage_to_what_is_packed_is_one_line(packages: Packages, refused: Run) -> None:
    data = packages.first.path.read_bytes()
    for offset in (header_size(data), (header_size(data) + len(data)) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[offset] ^= 1
        for arguments in ((), ("--check",)):
            assert "damaged" in said(refused(bytes(changed), *arguments))


def test_truncation_is_refused(packages: Packages, refused: Run) -> None:
    data = packages.first.path.read_bytes()
    generator = random.Random(7)
    header = header_size(data)
    # What is shorter than the line that names its shell is no program at all.
    program = data.index(b"{") + 1
    lengths = [program, header // 2, header - 2, header, header + 1, len(data) - 64, len(data) - 1]
    lengths += [generator.randrange(program, len(data)) for _ in range(TRUNCATIONS)]
    lengths += [end + 1 for end in range(program, header - 1) if data[end] == ord("\n")]
    for length in lengths:
        result = refused(data[:length])
        if length > header:
            assert f"expected {len(data)} bytes, found {length}" in said(result)


@pytest.mark.parametrize("tail", [b"\n", b"\0", b"x" * 100, bytes(4096)], ids=repr)
def test_appended_bytes_are_refused(packages: Packages, refused: Run, tail: bytes) -> None:
    assert "damaged" in said(refused(packages.first.path.read_bytes() + tail[:100]))


def test_payload_of_another_package_is_refused(packages: Packages, refused: Run) -> None:
    first, second = packages.first.path.read_bytes(), packages.second.path.read_bytes()
    assert "damaged" in said(refused(first[: header_size(first)] + second[header_size(second) :]))


def test_package_read_from_a_pipe_is_refused(packages: Packages, tmp_path: Path) -> None:
    with packages.first.path.open("rb") as file:
        done = subprocess.run(
            ["sh", "-s", "--", f"--install-path={tmp_path}"],
            stdin=file,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            errors="replace",
        )
    assert "not through a pipe" in said(done)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_single_byte_of_the_script_can_be_wrong(packages: Packages, refused: Run) -> None:
    """Every byte of the script with a bit flipped, and every word begun by `#` and by `:`.

    `#` makes the rest of a line a comment and `:` a command a no-op: one of the two comparisons
    can be lost to either, the package must not be accepted nevertheless.
    """
    data = packages.first.path.read_bytes()
    generator = random.Random(11)
    for offset in range(header_size(data)):
        values = [data[offset] ^ (1 << generator.randrange(8))]
        if data[offset - 1] in b" \t\n;|&({":
            values += [value for value in b"#:" if value != data[offset]]
        for value in values:
            refused(data[:offset] + bytes([value]) + data[offset + 1 :])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "small disk", kib=256) as place:
        yield place


@pytest.mark.parametrize("free_kib", [0, 4, 40, 60, 76])
def test_full_disk_is_one_line_and_leaves_the_old_installation(
    packages: Packages, small_disk: Path, free_kib: int
) -> None:
    argument = f"--install-path={small_disk}/opp"
    assert run_package(packages.first.path, argument).returncode == 0
    fill(small_disk, free_kib)
    before = state(small_disk)
    line = said(run_package(packages.second.path, argument))
    assert "KiB needed" in line and f"{free_kib} KiB free" in line
    assert state(small_disk) == before
    (small_disk / "filling").unlink()
    assert run_package(packages.second.path, argument).returncode == 0


@pytest.mark.parametrize("free_kib", [0, 8, 40])
def test_disk_that_fills_while_it_is_written_to_leaves_nothing(
    packages: Packages, small_disk: Path, tmp_path: Path, free_kib: int
) -> None:
    """df says there is room, as it does where a quota is what ends."""
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "df").write_text("#!/bin/sh\necho Filesystem\necho none 9999999 1 9999999 1% /\n")
    (shims / "df").chmod(0o755)
    env = {"PATH": f"{shims}:{os.environ['PATH']}"}
    fill(small_disk, free_kib)
    before = state(small_disk)
    said(run_package(packages.first.path, f"--install-path={small_disk}/opp", env=env))
    assert state(small_disk) == before
    (small_disk / "filling").unlink()
    done = run_package(packages.first.path, f"--install-path={small_disk}/opp", env=env)
    assert done.returncode == 0 and installed(small_disk / "opp")


def fill(disk: Path, free_kib: int) -> None:
    free = shutil.disk_usage(disk).free
    (disk / "filling").write_bytes(bytes(free - free_kib * 1024))
