# SPDX-License-Identifier: Apache-2.0
"""The archive: the same bytes each time, and whatever is wrong with one is told in one line."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from provision import bundle_archive
from provision.bundle_archive import Member
from provision.bundle_stages import Content, complete
from provision.bundle_verify import verify

from tests.bundle.conftest import CLOCK
from tests.bundle.unpacked import unpack

ROOT = Path(__file__).parents[2]


def written(content: Content, clock: int = CLOCK) -> bytes:
    file = io.BytesIO()
    bundle_archive.write(complete(content, clock), content.name, file, clock)
    return file.getvalue()


def test_the_same_content_is_the_same_bytes_whenever_and_by_whom(
    content: Content, tmp_path: Path
) -> None:
    first = written(content)
    copies = []
    for number, member in enumerate(reversed(content.members)):
        source = member.source
        if isinstance(source, Path):
            copy = tmp_path / f"copy{number}"
            copy.write_bytes(source.read_bytes())
            copy.chmod(0o600)
            os.utime(copy, (number, number))
            source = copy
        copies.append(Member(member.path, source, member.executable))
    again = replace(content, members=copies, items=list(reversed(content.items)))
    assert written(again) == first
    assert written(content, CLOCK + 1) != first
    changed = [*content.members[:-1], replace(content.members[-1], executable=False)]
    assert written(replace(content, members=changed)) != first


def test_what_is_written_names_nobody_and_no_time_but_the_given_one(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", CLOCK)}
    assert {m.mode for m in members} == {0o644, 0o755}
    assert [m.name for m in members] == sorted(m.name for m in members)


def test_a_bundle_is_as_it_was_made_packed_and_unpacked(archive: Path, tmp_path: Path) -> None:
    assert verify(archive).faults == []
    root = unpack(archive, tmp_path / "else where")
    assert verify(root).faults == []
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=root, check=True)


def test_wherever_an_archive_ends_too_early_it_is_told(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    cut = tmp_path / "cut.tar"
    generator = random.Random(1)
    ends = {0, 1, 511, 512, 513, len(data) - 1, len(data) - 512, len(data) - tarfile.RECORDSIZE}
    # Where a member ends, nothing of the archive itself is amiss.
    with tarfile.open(archive) as tar:
        offsets = [member.offset for member in tar]
    ends |= {*offsets[:: len(offsets) // 8], *(generator.randrange(len(data)) for _ in range(8))}
    for end in sorted(ends):
        cut.write_bytes(data[:end])
        assert verify(cut).faults, f"cut off at {end} of {len(data)}"


def test_whatever_bit_of_a_content_is_another_it_is_told(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    with tarfile.open(archive) as tar:
        contents = [(m.offset_data, m.size) for m in tar if m.size]
    generator = random.Random(2)
    damaged = tmp_path / "damaged.tar"
    for offset, size in generator.sample(contents, 20):
        place = offset + generator.randrange(size)
        changed = bytearray(data)
        changed[place] ^= 1 << generator.randrange(8)
        damaged.write_bytes(changed)
        assert verify(damaged).faults, f"byte {place}"


def test_nothing_may_follow_the_end(archive: Path) -> None:
    with archive.open("ab") as file:
        file.write(bytes(tarfile.RECORDSIZE - 1) + b"x")
    assert verify(archive).faults == ["something follows the archive's end"]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


HOSTILE: dict[str, tuple[Callable[[str], tarfile.TarInfo], str]] = {
    "climbs": (lambda top: member(f"{top}/../../etc/x"), "leads out of the bundle's folder"),
    "absolute": (lambda top: member("/etc/x"), "leads out of the bundle's folder"),
    "unprintable": (lambda top: member(f"{top}/a\x1b[2Jb"), "leads out of the bundle's folder"),
    "no folder": (lambda top: member("alone"), "leads out of the bundle's folder, or is none"),
    "link": (lambda top: member(f"{top}/l", tarfile.SYMTYPE, "/etc"), "a link, folder or device"),
    "hard link": (
        lambda top: member(f"{top}/l", tarfile.LNKTYPE, f"{top}/install"),
        "a link, folder or device",
    ),
    "device": (lambda top: member(f"{top}/null", tarfile.CHRTYPE), "a link, folder or device"),
    "folder": (lambda top: member(f"{top}/empty", tarfile.DIRTYPE), "a link, folder or device"),
    "twice": (lambda top: member(f"{top}/install"), "is there twice"),
    "beside": (lambda top: member("other/file"), "lies beside the folder"),
    "more": (lambda top: member(f"{top}/more"), "more is not in SHA256SUMS"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_entry_that_a_bundle_does_not_have_is_told(archive: Path, name: str) -> None:
    make, expected = HOSTILE[name]
    with tarfile.open(archive, "a") as tar:
        top = tar.getnames()[0].partition("/")[0]
        tar.addfile(make(top), io.BytesIO())
    [fault] = verify(archive).faults
    assert expected in fault and fault.isprintable()


@pytest.mark.parametrize("data", [b"", b"no tar", bytes(10240), os.urandom(2048)])
def test_what_is_no_archive_is_told_by_the_command(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    done = run("--verify", path)
    assert done.returncode == 1
    assert all(line.startswith("bundle: ") for line in done.stdout.splitlines())
    assert done.stdout.count("\n") == 1 and not done.stderr


def run(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts/bundle", *arguments],
        env={**os.environ, "PYTHON": sys.executable, **environ},
        capture_output=True,
        text=True,
    )
