# SPDX-License-Identifier: Apache-2.0
"""Find Huawei's prebuilt artifact for a SoC among the downloads, and compare its sha256.

    python official_artifact.py run-package --soc ascend910b --downloads DIR
    python official_artifact.py extension --downloads DIR --unpack official

prints the path. `locks/official.toml` has the sha256 that are known. For the others DIR holds a
file `SHA256SUMS`, as sha256sum writes it, by which the user says which file is meant.

Recipes run it as a file of their sources, `soc.toml` and `official.toml` beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import re
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUMS = "SHA256SUMS"
SCHEMA = 1
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


class ArtifactError(RuntimeError):
    """The artifact cannot be had; one line says what to do."""


@dataclass(frozen=True)
class Lock:
    """What is known of the artifacts: their version, where they lie, of some the sha256 by name."""

    version: str
    url: str
    sha256: Mapping[str, str]

    def run_package(self, label: str, machine: str) -> str:
        """Stage 1's file name for a run-package label of soc.toml and a `uname -m`."""
        return f"cann-ops-batch_invariant-{label}-{self.version}-linux.{machine}.run"

    @property
    def extension(self) -> str:
        """Stage 2's file name: sources, the same for every SoC."""
        return f"batch_invariant-torch_ops_extension-{self.version}.zip"


def _beside_or_in_tree(name: str, folder: str) -> Path:
    here = Path(__file__).resolve()
    beside = here.with_name(name)
    return beside if beside.is_file() else here.parents[2] / folder / name


def _table(path: Path) -> dict[str, Any]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    if table.get("schema") != SCHEMA:
        raise ArtifactError(f"{path}: expected schema {SCHEMA}, found {table.get('schema')!r}")
    return table


def read_lock(path: Path | None = None) -> Lock:
    """The lock of this tree."""
    table = _table(path or _beside_or_in_tree("official.toml", "locks"))
    return Lock(table["version"], table["url"], table["sha256"])


def label_of(soc: str) -> str:
    """A SoC's label in the names of run packages.

    Raises:
        ArtifactError: the SoC is not in the table, or no NPU.
    """
    rows = _table(_beside_or_in_tree("soc.toml", "."))["soc"]
    npus = [name for name, row in rows.items() if row["npu_arch"]]
    if soc not in npus:
        raise ArtifactError(f"no official operators for {soc!r}; expected one of {', '.join(npus)}")
    return str(rows[soc]["label"])


def given(folder: Path) -> dict[str, str]:
    """The sha256 of the user's SHA256SUMS in a folder, by file name; {} without one.

    Raises:
        ArtifactError: a line of it is none of sha256sum's.
    """
    path = folder / SUMS
    if not path.is_file():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ArtifactError(
                f"{path}:{number}: expected '<sha256>  <file>', found {line[:80]!r}; make it with"
                f" sha256sum FILE > {SUMS}"
            )
        found[match[2].removeprefix("./")] = match[1]
    return found


def find(name: str, downloads: Path, lock: Lock) -> Path:
    """The artifact of that name in the folder of the downloads, its sha256 compared.

    Raises:
        ArtifactError: no sha256 is known or given, the file is not there, or it is another.
    """
    pinned, users = lock.sha256.get(name), given(downloads).get(name)
    if pinned and users and pinned != users:
        raise ArtifactError(
            f"{downloads / SUMS} gives sha256 {users} for {name}; the known one is {pinned}: remove"
            " its line"
        )
    expected = pinned or users
    if expected is None:
        raise ArtifactError(
            f"no sha256 is known for {name}: put the file into {downloads}, and what sha256sum says"
            f" of it into {downloads / SUMS}"
        )
    path = downloads / name
    if not path.is_file():
        raise ArtifactError(
            f"{path} is missing: download {name} (sha256 {expected}) into {downloads}, which"
            " BI_DOWNLOADS names"
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ArtifactError(f"{path}: expected sha256 {expected}, found {found}: download it again")
    return path


def unpack(archive: Path, target: Path) -> Path:
    """Unpacks the extension's sources; the folder with its setup.py or pyproject.toml.

    Raises:
        ArtifactError: it is no such archive.
    """
    shutil.rmtree(target, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(target)
    except zipfile.BadZipFile as error:
        raise ArtifactError(f"{archive} is no zip archive: {error}") from error
    # One folder deep as a rule.
    for pattern in ("setup.py", "pyproject.toml", "*/setup.py", "*/pyproject.toml"):
        for found in sorted(target.glob(pattern)):
            return found.parent
    raise ArtifactError(f"{archive} holds no setup.py: it is not the extension's source archive")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 0, or 1 with one line on standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run_package = commands.add_parser("run-package", help="stage 1")
    run_package.add_argument("--soc", required=True)
    run_package.add_argument("--machine", default=platform.machine())
    extension = commands.add_parser("extension", help="stage 2, in source")
    extension.add_argument("--unpack", type=Path, metavar="DIR", required=True)
    for command in (run_package, extension):
        command.add_argument("--downloads", type=Path, metavar="DIR", required=True)
    options = parser.parse_args(arguments)
    try:
        lock = read_lock()
        downloads = options.downloads.absolute()
        if options.command == "run-package":
            name = lock.run_package(label_of(options.soc), options.machine)
            print(find(name, downloads, lock))
        else:
            print(unpack(find(lock.extension, downloads, lock), options.unpack.absolute()))
    except (ArtifactError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
