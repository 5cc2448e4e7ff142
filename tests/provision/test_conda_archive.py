# SPDX-License-Identifier: Apache-2.0
"""A package that was written reads back, is the same bytes each time, and is all or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from provision import conda_archive
from provision.conda_archive import read_index, seal, write
from provision.conda_package import Entry, Metadata

METADATA = Metadata(
    name="demo", version="1.0", build="h_0", subdir="linux-64", depends=("python >=3.11",)
)
ENTRIES = (
    Entry("bin/run", b"#!/bin/sh\n", executable=True),
    Entry("lib/data", b"x" * 100_000),
    Entry("lib/link", link="data"),
)


def test_the_index_reads_back(tmp_path: Path) -> None:
    path = write(METADATA, ENTRIES, tmp_path)
    assert path.name == "demo-1.0-h_0.conda"
    index = read_index(path)
    assert index["name"] == "demo" and index["depends"] == ["python >=3.11"]


def test_the_same_entries_give_the_same_bytes(tmp_path: Path) -> None:
    first = write(METADATA, ENTRIES, tmp_path / "a").read_bytes()
    assert write(METADATA, ENTRIES, tmp_path / "b").read_bytes() == first
    other = (Entry("bin/run", b"#!/bin/sh\n"), *ENTRIES[1:])
    assert write(METADATA, other, tmp_path / "c").read_bytes() != first


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a//b", "info/index.json", ""])
def test_a_path_outside_the_prefix_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="cannot be packaged"):
        write(METADATA, [Entry(path)], tmp_path)


def test_a_path_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be packaged"):
        write(METADATA, [Entry("a"), Entry("a")], tmp_path)


def test_sealed_packages_differ_in_no_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for name, clock in (("a", 1_700_000_000), ("b", 1_900_000_000)):
        monkeypatch.setattr(conda_archive, "EPOCH", clock)
        made.append(write(METADATA, ENTRIES, tmp_path / name))
    monkeypatch.undo()
    assert made[0].read_bytes() != made[1].read_bytes()
    for path in made:
        seal(path)
    assert made[0].read_bytes() == made[1].read_bytes()
    assert read_index(made[0])["name"] == "demo"


def test_nothing_is_left_when_the_entries_end_in_an_error(tmp_path: Path) -> None:
    def broken() -> Iterator[Entry]:
        yield ENTRIES[0]
        raise OSError("the disk is on fire")

    with pytest.raises(OSError, match="on fire"):
        write(METADATA, broken(), tmp_path)
    assert list(tmp_path.iterdir()) == []
