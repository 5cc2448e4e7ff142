# SPDX-License-Identifier: Apache-2.0
"""Write one ``.conda`` package (format version 2) from a stream of entries.

An entry goes straight from its source into the compressed archive: a wheel is repackaged without
ever lying unpacked on the disk, which is what takes the time on slow ones. The result is a
function of the entries alone: fixed owner and clock, sorted names.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import zstandard

from provision.conda_package import Entry, Metadata

# The clock of everything that is written: 2020-01-01. zip can't say anything before 1980, and a
# .pyc compiled at run time keeps the source's time in 32 bits.
EPOCH = 1577836800
_ZIP_EPOCH = (2020, 1, 1, 0, 0, 0)

# torch is 0.7 GB unpacked: level 1 takes seconds where the usual 19 takes minutes, and the package
# is for this machine alone.
LEVEL = 1


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def index_record(metadata: Metadata) -> dict[str, Any]:
    """What ``info/index.json`` and the channel's index say of the package."""
    index: dict[str, Any] = {
        "name": metadata.name,
        "version": metadata.version,
        "build": metadata.build,
        "build_number": 0,
        "subdir": metadata.subdir,
        "depends": list(metadata.depends),
        "constrains": list(metadata.constrains),
        "timestamp": EPOCH * 1000,
    }
    if metadata.noarch:
        index["noarch"] = metadata.noarch
    if metadata.license:
        index["license"] = metadata.license
    if metadata.track_features:
        index["track_features"] = metadata.track_features
    return index


class _Tar:
    """A zstd-compressed tar inside an open zip member; a context manager."""

    def __init__(self, member: BinaryIO, threads: int) -> None:
        compressor = zstandard.ZstdCompressor(level=LEVEL, threads=threads)
        with contextlib.ExitStack() as opened:
            self._stream = opened.enter_context(compressor.stream_writer(member, closefd=False))
            # Mode "w|" never seeks, which a compressor can't. A large buffer saves calls.
            self._tar = opened.enter_context(
                tarfile.open(
                    fileobj=cast(BinaryIO, self._stream),
                    mode="w|",
                    bufsize=1 << 20,
                    format=tarfile.GNU_FORMAT,
                )
            )
            self._opened = opened.pop_all()

    def __enter__(self) -> _Tar:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def copy(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """An entry of another archive, at EPOCH."""
        member.mtime = EPOCH
        member.pax_headers = {}
        self._tar.addfile(member, content)

    def add(self, entry: Entry) -> None:
        info = tarfile.TarInfo(entry.path)
        info.mtime = EPOCH
        if entry.link is not None:
            info.type = tarfile.SYMTYPE
            info.linkname = entry.link
            info.mode = 0o777
            self._tar.addfile(info)
            return
        info.size = len(entry.data)
        info.mode = 0o755 if entry.executable else 0o644
        self._tar.addfile(info, io.BytesIO(entry.data))


def _path_record(entry: Entry) -> dict[str, Any]:
    record: dict[str, Any] = {"_path": entry.path}
    if entry.link is not None:
        return record | {"path_type": "softlink", "sha256": hashlib.sha256(b"").hexdigest()}
    record |= {
        "path_type": "hardlink",
        "sha256": hashlib.sha256(entry.data).hexdigest(),
        "size_in_bytes": len(entry.data),
    }
    if entry.placeholder is not None:
        record |= {"prefix_placeholder": entry.placeholder, "file_mode": "text"}
    return record


def write(
    metadata: Metadata,
    entries: Iterable[Entry],
    folder: Path,
    *,
    entry_points: Sequence[str] = (),
    threads: int = 2,
) -> Path:
    """Write the package into ``folder`` and return its path.

    The file appears under its name only once it is complete. ``entry_points`` are those of a
    ``noarch: python`` package (``"name = module:function"``). A path that occurs twice, is absolute
    or climbs out of the prefix is a ValueError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / metadata.file_name
    partial = folder / f".{metadata.file_name}.{os.getpid()}.partial"
    stem = target.stem
    paths: dict[str, dict[str, Any]] = {}
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:

            def member(name: str) -> BinaryIO:
                info = zipfile.ZipInfo(name, _ZIP_EPOCH)
                return cast(BinaryIO, archive.open(info, "w", force_zip64=True))

            with member("metadata.json") as file:
                file.write(_json({"conda_pkg_format_version": 2}))
            with member(f"pkg-{stem}.tar.zst") as file, _Tar(file, threads) as tar:
                for entry in entries:
                    parts = entry.path.split("/")
                    if ".." in parts or "" in parts or parts[0] == "info" or entry.path in paths:
                        raise ValueError(f"{metadata.name}: {entry.path!r} cannot be packaged")
                    tar.add(entry)
                    paths[entry.path] = _path_record(entry)
            about = {"summary": metadata.summary, "license": metadata.license or ""}
            info = {
                "info/index.json": index_record(metadata),
                "info/paths.json": {
                    "paths": [paths[path] for path in sorted(paths)],
                    "paths_version": 1,
                },
                "info/about.json": about,
            }
            if metadata.run_exports:
                info["info/run_exports.json"] = dict(metadata.run_exports)
            if metadata.noarch == "python":
                noarch: dict[str, Any] = {"type": "python"}
                if entry_points:
                    noarch["entry_points"] = list(entry_points)
                info["info/link.json"] = {"noarch": noarch, "package_metadata_version": 1}
            with member(f"info-{stem}.tar.zst") as file, _Tar(file, 0) as tar:
                for name, value in sorted(info.items()):
                    tar.add(Entry(name, _json(value)))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _read_info(package: Path, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(package) as archive:
        data = archive.read(f"info-{package.stem}.tar.zst")
    with (
        zstandard.ZstdDecompressor().stream_reader(data) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        for member in tar:
            if member.name == name:
                file = tar.extractfile(member)
                if file is not None:
                    record: dict[str, Any] = json.loads(file.read())
                    return record
    raise ValueError(f"{package} has no {name}")


def read_index(package: Path) -> dict[str, Any]:
    """The ``info/index.json`` of a ``.conda`` package."""
    return _read_info(package, "info/index.json")


def installed_size(package: Path) -> int:
    """About how many bytes a package installs; of a ``.conda``, exactly those of its files."""
    if package.suffix != ".conda":
        return 4 * package.stat().st_size
    paths = _read_info(package, "info/paths.json")["paths"]
    return sum(int(path.get("size_in_bytes") or 0) for path in paths)


def seal(package: Path) -> None:
    """Make a built package's bytes a function of what was built.

    Two builds of the same sources differ in their files' times and in that in ``info/index.json``,
    which become EPOCH, and in the channels' local paths in ``info/about.json``, which go.
    """
    name = f"info-{package.stem}.tar.zst"
    partial = package.with_name(f".{package.name}.{os.getpid()}.partial")
    try:
        with (
            zipfile.ZipFile(package) as old,
            zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as new,
        ):
            for member in sorted(old.namelist()):
                with new.open(zipfile.ZipInfo(member, _ZIP_EPOCH), "w", force_zip64=True) as file:
                    if member == name:
                        _seal_info(old.read(member), cast(BinaryIO, file))
                    elif member.endswith(".tar.zst"):
                        with old.open(member) as source:
                            _seal_payload(cast(BinaryIO, source), cast(BinaryIO, file))
                    else:
                        with old.open(member) as source:
                            shutil.copyfileobj(source, file, 1 << 20)
        partial.replace(package)
    finally:
        partial.unlink(missing_ok=True)


def _seal_payload(source: BinaryIO, target: BinaryIO) -> None:
    with (
        zstandard.ZstdDecompressor().stream_reader(source, read_size=1 << 20) as stream,
        tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as tar,
        _Tar(target, 2) as out,
    ):
        for member in tar:
            out.copy(member, tar.extractfile(member) if member.isfile() else None)


def _seal_info(data: bytes, target: BinaryIO) -> None:
    entries = []
    with (
        zstandard.ZstdDecompressor().stream_reader(data) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            content = file.read()
            if member.name == "info/index.json":
                content = _json(json.loads(content) | {"timestamp": EPOCH * 1000})
            elif member.name == "info/about.json":
                about = json.loads(content)
                about.pop("channels", None)
                content = _json(about)
            entries.append(Entry(member.name, content, bool(member.mode & 0o111)))
    with _Tar(target, 0) as out:
        for entry in sorted(entries, key=lambda entry: entry.path):
            out.add(entry)
