# SPDX-License-Identifier: Apache-2.0
"""A bundle of a small made-up channel, complete in each other respect."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from provision import bundle_archive, bundle_sources
from provision.bundle_archive import Member
from provision.bundle_stages import Content, channel_parts, complete, wheel_parts
from provision.bundle_verify import SCHEMA
from provision.conda_package import Entry, Metadata
from provision.progress import Progress
from provision.standin import Planned, assemble, native_subdir

from tests.provision.conftest import WheelMaker
from tests.provision.conftest import make_wheel as make_wheel

ROOT = Path(__file__).parents[2]
CLOCK = 1_700_000_000


def package(name: str, depends: tuple[str, ...] = (), licence: str | None = None) -> Planned:
    metadata = Metadata(
        name, "1.0", "h_0", "noarch", depends=depends, noarch="generic", license=licence
    )
    # The interpreter of a prefix is this one, by another path.
    python = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'.encode()
    what = Entry("bin/python", python, executable=True)
    return Planned(
        metadata, lambda: (what if name == "python" else Entry(f"share/{name}", b"content"),)
    )


def packages() -> list[Planned]:
    return [
        package("vllm-ascend", ("ascend-soc * h_0", "operators ==1.0 h_*"), "Apache-2.0"),
        package("operators", ("python >=1",), "Apache-2.0 OR MIT"),
        package("ascend-soc"),
        package("python", licence="A licence of its own"),
    ]


@pytest.fixture
def content(tmp_path: Path, make_wheel: WheelMaker) -> Content:
    channel = tmp_path / "channel"
    assemble(channel, packages(), Progress())
    members, items, size = channel_parts(list(channel.glob("*/*.conda")))
    more, tools = wheel_parts([make_wheel("solver")])
    about = {
        "schema": SCHEMA,
        "kind": "conda",
        "soc": "cpu",
        "name": "vllm-ascend",
        "version": "1.0",
        "subdir": native_subdir(),
        "machine": platform.machine(),
        "libc": platform.libc_ver()[1],
        "specs": ["vllm-ascend", "ascend-soc * h_0"],
        "installed_bytes": size,
    }
    needed = ("tools/", "csrc/torch_ops_extension/LICENSE", "recipes/conda/variants.yaml")
    sources = [
        member
        for member in bundle_sources.source_members(ROOT)
        if member.path.removeprefix("source/").startswith(needed)
    ]
    install = Member("install", ROOT / "tools/bundle-install", executable=True)
    roots = ("vllm-ascend", "ascend-soc", "solver")
    return Content(about, [*members, *more, *sources, install], [*items, *tools], roots)


@pytest.fixture
def archive(content: Content, tmp_path: Path) -> Path:
    path = tmp_path / "bundle.tar"
    with path.open("wb") as file:
        bundle_archive.write(complete(content, CLOCK), content.name, file, CLOCK)
    return path
