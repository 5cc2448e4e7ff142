# SPDX-License-Identifier: Apache-2.0
"""Stages 1 and 2 inside the wheel `vllm-ascend`, for `setup.py`:

    COMPILE_CUSTOM_KERNELS=1 VLLM_BATCH_INVARIANT=1 pip install . --no-build-isolation

The operators become part of the wheel, editable or not, so that one distribution owns every file:
pip installs all of it or nothing, `pip wheel` changes no environment, and `pip uninstall
vllm-ascend` removes all of it. Stage 1 goes where stage 2 looks, `<sys.prefix>/share/ascend/opp`.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import re
import shlex
import sys
import time
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from pathlib import Path

from csrc import stages
from csrc.run_package import build as run_package
from vllm_ascend import soc as soc_table

OPERATORS = "batch_invariant_ops"
# pip removes a folder if a file of the wheel lies in it and nothing else does: with this one, those
# between `share` and the operators.
NOTE = "share/ascend/README.txt"
NOTE_TEXT = (
    b"Operators that pip installed with vllm-ascend; `pip uninstall vllm-ascend` removes them.\n"
)


def plan(environ: Mapping[str, str]) -> stages.Plan:
    """What the environment asks for: SOC_VERSION, by default this machine's SoC, and MAX_JOBS.

    Raises:
        StageError: MAX_JOBS is no number.
        SocError: the SoC is unknown, unsupported, or not given and not to be told.
    """
    named = environ.get("SOC_VERSION", "").strip()
    jobs = environ.get("MAX_JOBS", "").strip() or str(len(os.sched_getaffinity(0)))
    if not jobs.isdecimal() or int(jobs) < 1:
        raise stages.StageError(f"MAX_JOBS={jobs}: expected a number from 1")
    return stages.Plan(
        soc=soc_table.resolve(named) if named else soc_table.default(environ),
        stages=(1, 2),
        install_path=stages.default_install_path(),
        install=False,
        output=None,
        build_dir=None,
        jobs=int(jobs),
    )


def check(environ: Mapping[str, str]) -> None:
    """Sees that the wheel can be built and installed here, before minutes are spent.

    Raises:
        StageError, SocError: it can't.
    """
    asked = plan(environ)
    stages.check_soc(asked.soc)
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("torch") is None:
        raise stages.StageError(
            "building the operators takes torch 2.13, which is not in this environment: install it,"
            " and give pip --no-build-isolation"
        )
    for module in ("pip", "setuptools"):
        if importlib.util.find_spec(module) is None:
            raise stages.StageError(f"{python} has no {module}: install it there")
    stages.check_setuptools()
    stages.check_cmake()
    stages.check_compiler()
    stages.generator()
    check_owner(asked.place)
    if reason := stages.torch_fails():  # the one that takes seconds
        raise stages.StageError(f"{python} cannot import torch ({reason}): install torch 2.13")


def check_owner(place: Path) -> None:
    """Sees that no operators are installed but those of an earlier wheel, which pip replaces.

    What the script installed has owners of its own, whose files pip would overwrite.

    Raises:
        StageError: there are some.
    """
    there = str(place) if place.is_symlink() else ""
    for found in importlib.metadata.distributions(name=OPERATORS):
        installer = (found.read_text("INSTALLER") or "").strip()
        if installer != "vllm-ascend":
            there = (
                there or f"{OPERATORS} {found.version}, by {installer or 'an unknown installer'}"
            )
    if there:
        raise stages.StageError(
            f"operators are installed already ({there}): remove them, by bash"
            f" csrc/{stages.PROGRAM}.sh --uninstall where the script installed them, or unset"
            " VLLM_BATCH_INVARIANT to keep them and install vllm-ascend alone"
        )


def requirements() -> list[str]:
    """What a wheel that holds the operators requires: the torch that they are built against."""
    return [f"torch=={'.'.join(importlib.metadata.version('torch').split('.')[:2])}.*"]


def add(wheel: Path, environ: Mapping[str, str]) -> Path:
    """Builds stages 1 and 2, tries them, and puts them into a wheel of vllm-ascend.

    Returns the wheel's new path: its name says that it is for one platform.

    Raises:
        StageError: a stage failed; the wheel is as it was.
    """
    asked = plan(environ)
    os.umask(0o022)
    with stages.workshop_for(asked) as workshop:
        package = stages.make_run_package(asked, workshop)
        root, site = workshop.directory / "opp", workshop.directory / "site"
        stages.install_run_package(package, root)
        built = stages.make_wheel(asked, workshop, stages.copy_of_stage2(workshop))
        with zipfile.ZipFile(built) as archive:
            archive.extractall(site)
        stages.try_operators(root / stages.VENDOR, workshop, PYTHONPATH=str(site))
        # None of the installer's own: pip replaces files as a whole and removes them.
        stage1 = {
            name: data
            for name, data in _files(root / stages.VENDOR).items()
            if not name.startswith("scripts/")
        }
        return _joined(wheel, stage1, _files(site), tag=built.stem.split("-", 2)[2])


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _joined(
    wheel: Path, stage1: Mapping[str, bytes], stage2: Mapping[str, bytes], tag: str
) -> Path:
    """Writes the wheel anew with the operators in it, in one step."""
    with zipfile.ZipFile(wheel) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    (record,) = (name for name in entries if re.fullmatch(r"[^/]+\.dist-info/RECORD", name))
    information = record.rpartition("/")[0]
    data = information.removesuffix(".dist-info") + ".data"
    del entries[record]
    entries[f"{information}/WHEEL"] = _for_platform(entries[f"{information}/WHEEL"], tag)
    prefix = f"{data}/data"
    entries[f"{prefix}/{NOTE}"] = NOTE_TEXT
    for name, content in stage1.items():
        entries[f"{prefix}/share/ascend/opp/{stages.VENDOR.as_posix()}/{name}"] = content
    for name, content in stage2.items():
        if ".dist-info/" not in name:
            entries[name] = content
            continue
        # A wheel has one dist-info folder. As data this one is installed all the same: who asks for
        # the operators' version is answered, and pip, which finds no RECORD, removes or replaces
        # nothing behind vllm-ascend's back.
        folder, _, rest = name.partition("/")
        if rest == "METADATA":
            _check_requirements(content, entries[f"{information}/METADATA"])
            entries[f"{data}/platlib/{folder}/INSTALLER"] = b"vllm-ascend\n"
        if rest == "METADATA" or rest.startswith("licenses/"):
            entries[f"{data}/platlib/{name}"] = content
    target = wheel.with_name(f"{'-'.join(wheel.stem.split('-')[:-3])}-{tag}.whl")
    partial = wheel.with_name(f".{target.name}.partial")
    _write(partial, entries, record)
    wheel.unlink()
    return partial.rename(target)


def _for_platform(text: bytes, tag: str) -> bytes:
    """The content of WHEEL for a wheel that holds libraries."""
    kept = [
        line
        for line in text.decode().splitlines()
        if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))
    ]
    return "\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {tag}", ""]).encode()


def _check_requirements(operators: bytes, plugin: bytes) -> None:
    """Raises StageError unless the plugin's metadata requires all that the operators' does."""
    wanted, stated = (
        set(message_from_bytes(metadata).get_all("Requires-Dist") or ())
        for metadata in (operators, plugin)
    )
    if not wanted <= stated:
        raise stages.StageError(
            f"{OPERATORS} was built for {', '.join(sorted(wanted))}, and torch changed since pip"
            f" read {', '.join(sorted(stated))}: install again"
        )


def _write(path: Path, entries: Mapping[str, bytes], record: str) -> None:
    """Writes a wheel: the same entries give the same bytes, under one SOURCE_DATE_EPOCH."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run_package.MTIME)
    date = time.gmtime(max(epoch, run_package.MTIME))[:6]
    listing = io.StringIO(newline="")
    rows = csv.writer(listing, lineterminator="\n")
    for name in sorted(entries):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entries[name]).digest()).rstrip(b"=")
        rows.writerow((name, f"sha256={digest.decode()}", len(entries[name])))
    rows.writerow((record, "", ""))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (
            *((name, entries[name]) for name in sorted(entries)),
            (record, listing.getvalue().encode()),
        ):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
