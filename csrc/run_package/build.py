# SPDX-License-Identifier: Apache-2.0
"""Makes the operator run package, a self-extracting file, from a staged tree.

The file is `header.sh` with its blanks filled in, a tar.gz, and the sha256 of both. The same tree
gives the same bytes wherever, whenever and by whomever it is packed: entries are sorted, their
owner, mode and time are fixed, and nothing of the machine is recorded.

    python -m csrc.run_package.build --tree STAGE --soc cpu --output DIR

prints the path of the package.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vllm_ascend import soc as soc_table

HERE = Path(__file__).resolve().parent
PACKAGE = "cann-ops-batch_invariant"
LIBRARY = "op_api/lib/libcust_opapi.so"
HEADER = "op_api/include/batch_invariant.h"
LIST = "scripts/files.sha256"

# 1980-01-01, the oldest time that every archive format can state; tar warns about 1970.
MTIME = 315532800

# The header reads names with `read` and `sha256sum -c`: no blank, no backslash, no leading dash.
NAME = re.compile(r"[A-Za-z0-9_+.][A-Za-z0-9_+.-]*(/[A-Za-z0-9_+.][A-Za-z0-9_+.-]*)*")
# What --upgrade can compare: numbers that a shell counts with, and release candidates.
VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*(rc[0-9]{1,8})?")

# e_machine of an ELF file (offset 18), for the processors that Ascend hosts have.
MACHINES = {62: "x86_64", 183: "aarch64"}


class PackageError(Exception):
    """The staged tree can't be packed; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Built:
    """A run package that was written."""

    path: Path
    sha256: str
    files: tuple[str, ...]
    """Everything it installs, relative to `vendors/batch_invariant`, sorted."""


def version() -> str:
    """The version of stages 1 and 2, from csrc/VERSION."""
    return (HERE.parent / "VERSION").read_text(encoding="utf-8").strip()


def file_name(label: str, version: str, arch: str) -> str:
    """What the package for a run-package label, version and processor is called."""
    return f"{PACKAGE}-{label}-{version}-linux.{arch}.run"


def architecture(library: bytes) -> str:
    """The processor that an ELF shared library was compiled for, as `uname -m` says it.

    Raises:
        PackageError: not an ELF file, or for a processor that no package is made for.
    """
    if library[:4] != b"\x7fELF" or len(library) < 20:
        raise PackageError(f"{LIBRARY} is not a shared library")
    # e_ident[EI_DATA]: 1 is little endian, 2 is big endian.
    machine = int.from_bytes(library[18:20], "big" if library[5] == 2 else "little")
    if machine not in MACHINES:
        raise PackageError(f"{LIBRARY} is for an unknown processor (ELF machine {machine})")
    return MACHINES[machine]


def abi_version(header: str) -> int:
    """BI_ABI_VERSION of batch_invariant.h.

    Raises:
        PackageError: the header defines none.
    """
    found = re.search(r"^#define BI_ABI_VERSION (\d+)$", header, re.MULTILINE)
    if not found:
        raise PackageError(f"{HEADER} defines no BI_ABI_VERSION")
    return int(found[1])


def staged(tree: Path) -> dict[str, bytes]:
    """The content of a staged tree by name, relative to `vendors/batch_invariant`.

    A link within the tree (`liboptiling.so`) is packed as the file it leads to.

    Raises:
        PackageError: no library, a name the header can't read, or a link that leads outside.
    """
    content: dict[str, bytes] = {}
    root = tree.resolve()
    for folder, folders, names in os.walk(tree):
        # A link to a directory is among the folders, and not walked into: refused below.
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders.sort()
        for name in sorted([*names, *links]):
            path = Path(folder) / name
            relative = path.relative_to(tree).as_posix()
            if not NAME.fullmatch(relative):
                raise PackageError(f"{relative!r}: expected letters, digits and _+.- in a name")
            if not path.resolve().is_relative_to(root) or not path.is_file():
                raise PackageError(f"{relative}: expected a file inside the staged tree")
            content[relative] = path.read_bytes()
    if LIBRARY not in content:
        raise PackageError(f"{tree} has no {LIBRARY}: expected what `cmake --install` puts there")
    return content


def script(name: str) -> str:
    """A shell script of this folder, with the files it includes in place of their inclusion."""

    def included(found: re.Match[str]) -> str:
        # Without its two lines for shellcheck and the licence.
        return (HERE / found[1]).read_text(encoding="utf-8").split("\n", 2)[2]

    text = (HERE / name).read_text(encoding="utf-8")
    return re.sub(r"# shellcheck source-path=.*\n\. \./([a-z]+\.sh)\n", included, text)


def version_info(fields: Mapping[str, str]) -> str:
    """`version.info` in CANN's style: one key=value a line."""
    return "".join(f"{key}={value}\n" for key, value in fields.items())


def payload(files: Mapping[str, bytes]) -> bytes:
    """The tar.gz of `files`, directories included, as the same bytes for the same content."""
    directories = {
        parent.as_posix()
        for name in files
        for parent in PurePosixPath(name).parents
        if parent != PurePosixPath(".")
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted({*directories, *files}):
            entry = tarfile.TarInfo(name)
            entry.mtime = MTIME
            if name in directories:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
                continue
            entry.size = len(files[name])
            # A library needs no execute bit to be loaded; a script is run by its name.
            entry.mode = 0o755 if files[name].startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as stream:
        stream.write(archive.getvalue())
    return packed.getvalue()


def header(blanks: Mapping[str, str]) -> bytes:
    """The header with its blanks filled in, its own length among them."""
    text = script("header.sh")
    for key, value in blanks.items():
        text = text.replace(f"'@{key}@'", f"'{value}'")
    size = len(text.encode())
    while True:  # the length has few digits: settles in two or three rounds
        filled = text.replace("'@header_bytes@'", f"'{size}'").encode()
        if len(filled) == size:
            break
        size = len(filled)
    if unfilled := re.search(rb"'@[a-z0-9_]+@'", filled):
        raise PackageError(f"header.sh has a blank that nothing fills: {unfilled[0].decode()}")
    return filled


def build(
    tree: Path, soc: soc_table.Soc, output: Path, *, version: str, arch: str | None = None
) -> Built:
    """Writes the package of a staged tree into the directory `output`, in one step.

    Args:
        tree: what `cmake --install` made: `op_api/lib/libcust_opapi.so`, `op_api/include/…`.
        soc: the row of the SoC table it was built for.
        output: an existing directory; a package of the same name in it is replaced.
        version: of stage 1, e.g. "0.1.0".
        arch: `uname -m` of the machines it is for; by default what the library says.

    Raises:
        PackageError: the tree can't be packed.
        OSError: something can't be read or written.
    """
    if not VERSION.fullmatch(version):
        raise PackageError(f"version {version!r}: expected something like 0.1.0")
    files = staged(tree)
    compiled_for = architecture(files[LIBRARY])
    if arch is not None and arch != compiled_for:
        raise PackageError(f"{LIBRARY} is for {compiled_for}, the package is to be for {arch}")
    info = {
        "package": PACKAGE,
        "version": version,
        "soc": soc.name,
        "label": soc.label,
        "os": "linux",
        "arch": compiled_for,
    }
    if HEADER in files:
        info["abi"] = str(abi_version(files[HEADER].decode()))
    own = {
        "version.info": version_info(info),
        "scripts/uninstall.sh": script("uninstall.sh"),
        "bin/set_env.bash": script("set_env.bash"),
    }
    if clash := sorted({*own, LIST} & set(files)):
        raise PackageError(f"{tree}: {clash[0]} is written by the package, not staged")
    files |= {name: text.encode() for name, text in own.items()}
    listed = "".join(
        f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)
    )
    files[LIST] = listed.encode()
    packed = payload(files)
    # Blocks of 4 KiB and one directory block each: an upper bound on most file systems.
    blocks = sum(-(-len(data) // 4096) + 1 for data in files.values())
    blanks = {
        "package": PACKAGE,
        "version": version,
        "soc": soc.name,
        "arch": compiled_for,
        "payload_bytes": str(len(packed)),
        "unpacked_kib": str(4 * blocks),
        "list_sha256": hashlib.sha256(files[LIST]).hexdigest(),
    }
    signed = header(blanks) + packed
    data = signed + hashlib.sha256(signed).hexdigest().encode()
    path = output / file_name(soc.label, version, compiled_for)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.chmod(0o755)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return Built(path=path, sha256=hashlib.sha256(data).hexdigest(), files=tuple(sorted(files)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 0, or 1 with one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m csrc.run_package.build", description="Make the operator run package."
    )
    parser.add_argument("--tree", type=Path, required=True, help="what `cmake --install` made")
    parser.add_argument("--soc", required=True, help="any spelling of a SoC")
    parser.add_argument("--output", "-o", type=Path, default=Path(), help="directory to write to")
    parser.add_argument("--version", default=version(), help="by default that of csrc/VERSION")
    parser.add_argument("--arch", help="by default that of the library")
    options = parser.parse_args(arguments)
    try:
        row = soc_table.resolve(options.soc)
        built = build(options.tree, row, options.output, version=options.version, arch=options.arch)
    except (PackageError, soc_table.SocError, OSError) as error:
        print(f"run package: {error}", file=sys.stderr)
        return 1
    print(built.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
