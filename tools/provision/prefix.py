# SPDX-License-Identifier: Apache-2.0
"""Solve an environment, install it into a prefix in one step, and run things in it."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rattler import RepoDataRecord, VirtualPackage, solve
from rattler.install import install
from rattler.shell import ActivationVariables, Shell, activate

from provision.prefix_stamp import STAMP, Installed, PrefixError, check_replaceable, installed
from provision.state import file_sha256

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def solve_for(sources: Sequence[str], specs: Sequence[str]) -> list[RepoDataRecord]:
    """The packages of an environment for this machine; PrefixError with the solver's reason."""
    try:
        return asyncio.run(
            solve(list(sources), list(specs), virtual_packages=VirtualPackage.detect())
        )
    except Exception as error:
        reason = " ".join(str(error).split())
        raise PrefixError(f"no environment with {', '.join(specs)}: {reason}") from error


def described(records: Sequence[RepoDataRecord]) -> list[Installed]:
    """What a solution holds, sorted by name."""
    return sorted(
        Installed(
            name=record.name.normalized,
            version=str(record.version),
            build=str(record.build),
            sha256=record.sha256.hex() if record.sha256 else "",
        )
        for record in records
    )


def _exchange(new: Path, old: Path) -> bool:
    """Swap two folders' names in one step, where kernel and file system can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    return bool(
        rename(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0
    )


def _put_in_place(new: Path, prefix: Path) -> None:
    if prefix.exists() and not _exchange(new, prefix):
        aside = prefix.with_name(f".{prefix.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        prefix.rename(aside)
        new.rename(prefix)
        shutil.rmtree(aside, ignore_errors=True)
    elif not prefix.exists():
        new.rename(prefix)
    # After an exchange the old one lies under the new one's name.
    shutil.rmtree(new, ignore_errors=True)


def check_archives(records: Sequence[RepoDataRecord]) -> None:
    """PrefixError unless each package of a local channel is, to the byte, what its index states.

    The installer compares what it unpacks, and passes over what follows the end of an archive.
    """
    for record in records:
        url = urllib.parse.urlsplit(str(record.url))
        if record.sha256 is None:
            raise PrefixError(f"{record.url}: its channel states no sha256; use another channel")
        if url.scheme != "file":
            continue
        path = Path(urllib.parse.unquote(url.path))
        stated = record.sha256.hex()
        try:
            found = file_sha256(path)
        except OSError as error:
            raise PrefixError(f"{path}: {error.strerror}; run again to make it anew") from error
        if found != stated:
            raise PrefixError(
                f"{path} is damaged: expected sha256 {stated}, found {found}; run again to make it"
                " anew"
            )


def install_into(
    records: Sequence[RepoDataRecord], specs: Sequence[str], prefix: Path, cache: Path
) -> bool:
    """Make ``prefix`` hold exactly ``records``; False if it did already.

    The new prefix is complete before it takes the old one's name: whoever looks, whenever this is
    killed, finds the one or the other. The caller keeps others out.
    """
    check_replaceable(prefix)
    wanted = described(records)
    if installed(prefix) == wanted:
        return False
    check_archives(records)
    new = prefix.with_name(f".{prefix.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    try:
        asyncio.run(
            install(
                list(records),
                new,
                cache_dir=cache,
                # Text files get the path they will be read under, not the one they are made under.
                alternative_target_prefix=prefix,
                execute_link_scripts=False,
                show_progress=False,
            )
        )
    except Exception as error:
        shutil.rmtree(new, ignore_errors=True)
        raise PrefixError(f"installing into {prefix} failed: {error}") from error
    # conda takes a folder with this file for an environment, and reads what was asked for.
    history = f"==> 2020-01-01 00:00:00 <==\n# update specs: {list(specs)!r}\n"
    (new / "conda-meta" / "history").write_text(history, encoding="utf-8")
    stamp = {"packages": [asdict(item) for item in wanted]}
    (new / STAMP).write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    _put_in_place(new, prefix)
    return True


def prune(cache: Path, kept: Collection[str]) -> None:
    """Remove unpacked packages whose file name's stem is not in ``kept``.

    A prefix keeps its own links to the files. The caller holds the cache alone.
    """
    for path in cache.glob("*") if cache.is_dir() else ():
        if path.name.removesuffix(".lock") in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def activated(prefix: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment a shell has after ``prefix`` was activated in ``environment``."""
    variables = ActivationVariables(None, environment.get("PATH", os.defpath).split(os.pathsep))
    script = activate(prefix, variables, Shell.bash).script
    done = subprocess.run(
        ["bash", "-c", f"{script}\nexec env -0"],
        env=dict(environment),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise PrefixError(
            f"activating {prefix} failed: {done.stderr.decode('utf-8', 'replace').strip()}"
        )
    pairs = (item.partition(b"=") for item in done.stdout.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
