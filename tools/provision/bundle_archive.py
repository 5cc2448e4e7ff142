# SPDX-License-Identifier: Apache-2.0
"""A bundle's files: written as one tar of the same bytes each time, and read with no trust.

A bundle holds plain files below one folder and nothing else: no links, no devices, no entries for
folders. What is said here of an archive holds for the folder that it was unpacked to.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from provision.state import file_sha256

SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)")
_CHUNK = 1 << 20
# Of the files that are read whole; the largest, a channel's index, takes a tenth of a megabyte.
_DOCUMENT_BYTES = 1 << 26

Fault = Callable[[str], None]


@dataclass(frozen=True)
class Member:
    """One file of a bundle: its path in it, and its content or where that lies."""

    path: str
    source: Path | bytes
    executable: bool = False

    def sha256(self) -> str:
        """The sha256 of the content, hexadecimal."""
        if isinstance(self.source, bytes):
            return hashlib.sha256(self.source).hexdigest()
        return file_sha256(self.source)


def sums(digests: Iterable[tuple[str, str]]) -> bytes:
    """The text of SHA256SUMS, as sha256sum writes it, for (path, sha256)."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(digests)).encode()


def read_sums(text: bytes, fault: Fault) -> dict[str, str]:
    """The sha256 that a SHA256SUMS states, by path; a line that is none of it is a fault."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        match = _SUM.fullmatch(line)
        if match is None or match[2] in found:
            fault(f"{SUMS}:{number}: expected a sha256 and a path of its own, found {line[:80]!r}")
        else:
            found[match[2]] = match[1]
    return found


def write(members: Iterable[Member], top: str, output: IO[bytes], mtime: int) -> None:
    """Write the tar: its bytes are a function of the members, ``top`` and ``mtime``."""
    ordered = sorted(members, key=lambda member: member.path)
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in ordered:
            info = tarfile.TarInfo(f"{top}/{member.path}")
            info.mtime = mtime
            info.mode = 0o755 if member.executable else 0o644
            if isinstance(member.source, bytes):
                info.size = len(member.source)
                tar.addfile(info, io.BytesIO(member.source))
                continue
            with member.source.open("rb") as file:
                info.size = os.fstat(file.fileno()).st_size
                tar.addfile(info, file)


def _plain(name: str) -> bool:
    """Whether a name is a path below the folder that it is unpacked in."""
    return all(part not in ("", ".", "..") for part in name.split("/")) and name.isprintable()


def in_archive(path: Path, fault: Fault) -> Iterator[tuple[str, IO[bytes]]]:
    """(path below the top folder, content) of an archive's files, in its order.

    ``fault`` is called for whatever else is in there, and where the archive is cut off. OSError
    where the file itself can't be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                yield from _members(tar, fault)
                end = tar.offset
        except (tarfile.TarError, EOFError, ValueError) as error:
            fault(f"the archive is damaged or cut off: {error}")
            return
        file.seek(end)
        rest = file.read(2 * tarfile.RECORDSIZE + 1)
        # A tar ends in two blocks of zeros, filled up to a record.
        if len(rest) < 2 * tarfile.BLOCKSIZE or size % tarfile.RECORDSIZE:
            fault("the archive is cut off at its end")
        elif any(rest) or len(rest) > 2 * tarfile.RECORDSIZE:
            fault("something follows the archive's end")


def _members(tar: tarfile.TarFile, fault: Fault) -> Iterator[tuple[str, IO[bytes]]]:
    tops: set[str] = set()
    seen: set[str] = set()
    for member in tar:
        name = member.name
        content = tar.extractfile(member) if member.isreg() else None
        top, _, below = name.partition("/")
        if not _plain(name) or not below:
            fault(f"{name!r}: its path leads out of the bundle's folder, or is none")
        elif content is None or member.issparse():
            fault(f"{name}: a link, folder or device; a bundle holds plain files")
        elif name in seen:
            fault(f"{name}: is there twice")
        elif tops and top not in tops:
            fault(f"{name}: lies beside the folder {tops.pop()}/ that holds the rest")
            tops.add(top)
        else:
            seen.add(name)
            tops = {top}
            yield below, content


def in_folder(root: Path, fault: Fault) -> Iterator[tuple[str, IO[bytes]]]:
    """(path, content) of the files of an unpacked bundle; see in_archive."""

    def unreadable(error: OSError) -> None:
        fault(f"{error.filename}: {error.strerror}")

    for folder, folders, files in os.walk(root, onerror=unreadable):
        folders.sort()
        for name in [*folders]:
            path = Path(folder) / name
            if path.is_symlink():
                fault(f"{path.relative_to(root)}: a link; a bundle holds plain files")
                folders.remove(name)
        for name in sorted(files):
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if not stat.S_ISREG(path.lstat().st_mode):
                fault(f"{relative}: a link or device; a bundle holds plain files")
                continue
            try:
                with path.open("rb") as file:
                    yield relative, file
            except OSError as error:
                fault(f"{relative}: {error.strerror}")


def digest_of(content: IO[bytes], keep: bool) -> tuple[str, bytes]:
    """The sha256 of a file's content and, with ``keep``, the content itself.

    ValueError where it is cut off, or too long to be one of a bundle's documents.
    """
    digest = hashlib.sha256()
    kept = bytearray()
    while chunk := _read(content):
        digest.update(chunk)
        if keep:
            kept += chunk
            if len(kept) > _DOCUMENT_BYTES:
                raise ValueError("longer than such a file can be")
    return digest.hexdigest(), bytes(kept)


def _read(content: IO[bytes]) -> bytes:
    try:
        return content.read(_CHUNK)
    except tarfile.TarError as error:
        raise ValueError("cut off") from error
