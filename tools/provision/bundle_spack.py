# SPDX-License-Identifier: Apache-2.0
"""What a bundle of the kind ``spack`` holds: its externals' wheels, a source mirror, the tree.

Spack builds stages 1 to 3 from the tree that its recipes lie in, which is the bundle's ``source/``.
Python's packages are externals from one prefix (recipes/spack/README.md), made from ``wheels/``.
What Spack would fetch lies in ``mirror/``, by sha256, and Huawei's artifacts in ``official/``.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from provision import official_artifact
from provision.bundle_archive import Member
from provision.bundle_mirror import ARCHIVES, archives
from provision.bundle_verify import BundleError
from provision.lockfile import Pin, by_name, normalise, read
from provision.sbom import Item, wheel_item
from provision.state import file_sha256
from provision.wheel import Wheel

_ARCHIVE = re.compile(r"([0-9a-f]{64})((?:\.[a-z0-9]+)*)")
# Whose recipe takes which of Huawei's artifacts.
STAGE_1, STAGE_2 = "ascendc-batch-invariant-ops", "py-batch-invariant-ops"


def locks_of(soc: str) -> tuple[str, ...]:
    """The locks that the externals' prefix is made from, in the order in which pip takes them."""
    return ("build", "runtime-cpu") if soc == "cpu" else ("build", "runtime-cpu", "build-npu")


def pins_of(locks: Path, soc: str) -> list[Pin]:
    """What the externals' prefix takes."""
    return list(
        by_name(pin for name in locks_of(soc) for pin in read(locks / f"{name}.txt")).values()
    )


def wheel_items(files: Sequence[Path]) -> Iterator[Item]:
    """Wheels with what each needs of the others, by the markers of this machine."""
    for path in sorted(files):
        requirements = map(Requirement, Wheel(path).requires)
        yield wheel_item(
            path,
            (
                normalise(each.name)
                for each in requirements
                if each.marker is None or each.marker.evaluate({"extra": ""})
            ),
        )


def mirrored(folder: Path) -> Iterator[tuple[Member, Item]]:
    """Every archive of a Spack source mirror.

    Raises:
        BundleError: there is none, or one is not what its name says.
    """
    for path in archives(folder):
        match = _ARCHIVE.fullmatch(path.name)
        digest = file_sha256(path)
        if match is None or match[1] != digest:
            raise BundleError(f"{path}: its sha256 is {digest}, and its name says another")
        yield _archive(path, f"archive-{digest[:16]}", digest[:16], digest, match[2])


def _archive(path: Path, name: str, version: str, digest: str, suffix: str) -> tuple[Member, Item]:
    place = f"mirror/{ARCHIVES}/{digest[:2]}/{digest}{suffix}"
    item = Item(name, version, f"pkg:generic/{name}@{version}", place, digest)
    return Member(place, path), item


def npu_archives(folder: Path, locks: Path) -> Iterator[tuple[Member, Item]]:
    """torch-npu's wheel and vLLM's sources, from the folder of the downloads.

    Raises:
        BundleError: one is not there.
    """
    digests = {file_sha256(path): path for path in sorted(folder.iterdir()) if path.is_file()}
    for pin in read(locks / "runtime-npu.txt"):
        found = [digests[digest] for digest in pin.sha256 if digest in digests]
        if not found:
            raise BundleError(
                f"--downloads {folder}: no file has a sha256 of {pin.name} {pin.version}"
            )
        for path in found:
            # The recipe takes a wheel as it is: its file in a mirror has no suffix.
            suffix = "" if path.suffix == ".whl" else ".tar.gz"
            name = f"{pin.name}-source" if suffix else pin.name
            yield _archive(path, name, pin.version, file_sha256(path), suffix)


def official_parts(folder: Path, soc: str) -> Mapping[str, tuple[Member, Item]]:
    """Huawei's artifacts, by the Spack package that takes each.

    Raises:
        ArtifactError: one is not there, or another.
    """
    lock = official_artifact.read_lock()
    run_package = lock.run_package(official_artifact.label_of(soc), platform.machine())
    parts = {}
    for package, name in ((STAGE_1, run_package), (STAGE_2, lock.extension)):
        path = official_artifact.find(name, folder, lock)
        place = f"official/{name}"
        item = Item(
            package, lock.version, f"pkg:generic/{name}@{lock.version}", place, file_sha256(path)
        )
        parts[package] = (Member(place, path), item)
    return parts
