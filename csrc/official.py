# SPDX-License-Identifier: Apache-2.0
"""Huawei's prebuilt operators for `--provider official`: a file or URL whose sha256 is right.

Which sha256 are known, and where the artifacts lie, is in locks/official.toml. Of another artifact
the user gives the sha256.
"""

from __future__ import annotations

import hashlib
import http.client
import platform
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from provision import official_artifact

from vllm_ascend.soc import Soc

_SHA256 = re.compile(r"[0-9a-f]{64}")
_RUN_PACKAGE = re.compile(
    r"cann-ops-batch_invariant-(?P<label>[^-]+)-.*-linux\.(?P<machine>\w+)\.run"
)
_CHUNK = 1 << 20
# Of silence: a mirror that answers slowly is waited for, one that never does is not.
_PATIENCE_SECONDS = 60


class OfficialError(Exception):
    """The artifact cannot be had or is another one; one line says what to do."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One of Huawei's files: where it is to be had, and what it has to be."""

    name: str
    source: str
    """A path, or a URL."""
    sha256: str


def _artifact(name: str, source: str, given: str, option: str) -> Artifact:
    lock = official_artifact.read_lock()
    if given and not _SHA256.fullmatch(given):
        raise OfficialError(
            f"--sha256 {given!r}: expected 64 hexadecimal digits, as sha256sum says"
        )
    known = lock.sha256.get(name, "")
    if known and given and known != given:
        raise OfficialError(f"--sha256 is {given}, and that of {name} is known to be {known}")
    if not (known or given):
        raise OfficialError(
            f"no sha256 of {name} is known: give {option} FILE_OR_URL, and with --sha256 what"
            " sha256sum says of the file that you trust"
        )
    return Artifact(name, source or lock.url + name, known or given)


def _name_of(source: str) -> str:
    """The file name that a path or a URL ends in; OfficialError where it is neither."""
    try:
        path = urllib.parse.urlsplit(source).path if "://" in source else source
    except ValueError as error:
        raise OfficialError(f"{source} is no URL: {error}") from error
    return urllib.parse.unquote(path).rstrip("/").rpartition("/")[2]


def run_package(soc: Soc, source: str, sha256: str) -> Artifact:
    """Stage 1 for a SoC; `source` and `sha256` are the user's, "" where none is given.

    Raises:
        OfficialError: no sha256 is known or given, another is known, or it is for another machine.
    """
    machine = platform.machine()
    name = _name_of(source) or official_artifact.read_lock().run_package(soc.label, machine)
    named = _RUN_PACKAGE.fullmatch(name)
    if named and (named["label"], named["machine"]) != (soc.label, machine):
        raise OfficialError(
            f"{name} is for {named['label']} on {named['machine']}, expected {soc.label} on"
            f" {machine}"
        )
    return _artifact(name, source, sha256.lower(), "--official")


def extension(source: str) -> Artifact:
    """Stage 2's sources, whose sha256 is known."""
    return _artifact(official_artifact.read_lock().extension, source, "", "--official-extension")


def fetch(artifact: Artifact, directory: Path, say: Callable[[str], None]) -> Path:
    """The artifact in `directory`, compared there: what is used is what was compared.

    Raises:
        OfficialError: it cannot be had, or has another sha256; then nothing is left.
    """
    target = directory / artifact.name
    say(f"  {artifact.name}: from {artifact.source} ...")
    try:
        digest = hashlib.sha256()
        with _open(artifact.source) as source, target.open("wb") as file:
            while chunk := _read(source, artifact.source):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != artifact.sha256:
            raise OfficialError(
                f"{artifact.source}: expected sha256 {artifact.sha256}, found {digest.hexdigest()}:"
                " it is another file, or was damaged on its way"
            )
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _open(source: str) -> IO[bytes]:
    if "://" not in source:
        try:
            return Path(source).open("rb")
        except OSError as error:
            raise OfficialError(f"{source} cannot be read: {error.strerror}") from error
    scheme = urllib.parse.urlsplit(source).scheme
    if scheme not in ("https", "http", "file"):
        raise OfficialError(f"{source}: expected https, http or file")
    try:
        opened: IO[bytes] = urllib.request.urlopen(source, timeout=_PATIENCE_SECONDS)
    except (OSError, ValueError, http.client.HTTPException) as error:
        # A server's answer says more by itself: its number.
        answered = isinstance(error, urllib.error.HTTPError)
        reason = error if answered else getattr(error, "reason", error)
        raise OfficialError(
            f"{source} cannot be had: {reason}; where there is no network, give the file"
        ) from error
    return opened


def _read(source: IO[bytes], name: str) -> bytes:
    try:
        return source.read(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise OfficialError(f"{name} broke off: {error}; run it again") from error


def unpack(archive: Path, directory: Path) -> Path:
    """The extension's sources; the folder that pip takes.

    Raises:
        OfficialError: the archive holds none.
    """
    try:
        return official_artifact.unpack(archive, directory)
    except official_artifact.ArtifactError as error:
        raise OfficialError(str(error)) from error
