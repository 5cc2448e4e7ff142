# SPDX-License-Identifier: Apache-2.0
"""Install an unpacked bundle into a prefix, with what lies in the bundle and Python 3.11 alone.

``install`` in the bundle's root runs it. The solver is that of ``scripts/quickstart``; its wheel is
unpacked beside the prefix for as long as it is needed, so that neither pip nor venv is.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provision import bundle_install_spack
from provision.bundle_verify import BundleError, verify
from provision.ending import end_as_interrupted, leave
from provision.first_half import ERROR, INTERRUPTED, Parser
from provision.prefix_stamp import PrefixError
from provision.preflight import check_no_blank, check_prefix, existing_parent, failures
from provision.progress import Progress
from provision.state import absolute, exclusive

DAMAGED = 1

_EPILOG = """\
exit codes: 0 installed; 1 the bundle is damaged; 3 it could not be installed
environment: PYTHON (the Python 3.11 to use)

example:
  bash install --prefix ~/vllm-ascend"""

# What of the interpreter links to the system's libraries, and the operators where they can run.
_TRY = """
import importlib, sys, sysconfig
from pathlib import Path
folder = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
for name in ("_bz2", "_ctypes", "_lzma", "_sqlite3", "_ssl", "zlib"):
    if any(folder.glob(f"{name}.*")):
        importlib.import_module(name)
if sys.argv[1] == "cpu":
    importlib.import_module("batch_invariant_ops")
"""


class InstallError(RuntimeError):
    """The bundle cannot be installed here; one line says why."""


EXPECTED = (
    BundleError,
    InstallError,
    PrefixError,
    bundle_install_spack.SpackError,
    OSError,
    zipfile.BadZipFile,
)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def check_here(about: dict[str, Any], prefix: Path) -> None:
    """InstallError unless this machine is one that the bundle is for, with room for it."""
    if about.get("kind") not in ("conda", "spack"):
        raise InstallError(f"this bundle is of the kind {about.get('kind')!r}: take a newer tree's")
    machine = platform.machine()
    if machine != about["machine"]:
        raise InstallError(f"the bundle is for {about['machine']}, this machine is {machine}")
    libc = platform.libc_ver()[1]
    if _numbers(libc) < _numbers(about["libc"]):
        raise InstallError(
            f"the bundle was made with glibc {about['libc']}, this machine has {libc or 'none'}: "
            "make it on a machine with this one's system"
        )
    free = shutil.disk_usage(existing_parent(prefix.parent)).free
    if free < about["installed_bytes"]:
        raise InstallError(
            f"{about['installed_bytes'] / 1e9:.1f} GB are needed in {prefix}, {free / 1e9:.1f} GB "
            "are free; make room or choose another folder with --prefix DIR"
        )


def install(root: Path, about: dict[str, Any], prefix: Path, progress: Progress) -> bool:
    """Make the prefix; False if it held just that already. The caller keeps others out."""
    work = prefix.with_name(f".{prefix.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    try:
        modules = work / "modules"
        for wheel in sorted((root / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(modules)
        # Read by the solver's library when it is loaded.
        os.environ["RATTLER_CACHE_DIR"] = str(work / "cache")
        sys.path.insert(0, str(modules))
        made = importlib.import_module("provision.prefix")
        channel = (root / "channel").as_uri()
        records = made.solve_for([channel], about["specs"])
        progress("prefix", f"{len(records)} packages into {prefix}")
        # The packages' files are links to those unpacked beside it.
        return bool(made.install_into(records, about["specs"], prefix, work / "packages"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        # What was being made when this was stopped.
        shutil.rmtree(prefix.with_name(f".{prefix.name}.new"), ignore_errors=True)


def try_it(prefix: Path, soc: str) -> None:
    """InstallError if the prefix's Python does not run here."""
    environment = bundle_install_spack.for_another_python(os.environ)
    done = subprocess.run(
        [str(prefix / "bin" / "python"), "-c", _TRY, soc],
        env=environment | {"PYTHONNOUSERSITE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise InstallError(
            f"{prefix} is complete, and does not run here: {reason}; the bundle takes its Python "
            "from the machine it was made on, and needs the same system libraries"
        )


def install_conda(root: Path, about: dict[str, Any], prefix: Path, progress: Progress) -> str:
    """Make the prefix and try it; the line to end with. The caller keeps others out."""
    changed = install(root, about, prefix, progress)
    progress("try", "the new prefix's Python")
    try_it(prefix, about["soc"])
    word = "in" if changed else "was already in"
    return (
        f"{word} {prefix}; activate with: conda activate {prefix} "
        f"(without conda: export PATH={prefix}/bin:$PATH)"
    )


def install_spack(
    root: Path, about: dict[str, Any], prefix: Path, spack: str, progress: Progress
) -> str:
    """Let Spack install; the line to end with. The caller keeps others out."""
    place = bundle_install_spack.install(root, about, prefix, spack, progress)
    return f"by Spack, its environment in {place}; use it with: spack -e {place} load vllm-ascend"


def check_target(kind: str, prefix: Path) -> None:
    """InstallError if the prefix is somebody else's, or cannot be one."""
    if kind == "spack":
        bundle_install_spack.check_prefix(prefix)
        return
    missing = list(failures([lambda: check_no_blank(prefix), lambda: check_prefix(prefix)]))
    if missing:
        raise InstallError(missing[0])


def run(root: Path, prefix: Path, spack: str | None) -> int:
    """Check the bundle, make the prefix, try it; the exit code."""
    progress = Progress()
    progress("check", f"every file of {root}")
    verdict = verify(root)
    if verdict.faults:
        for fault in verdict.faults:
            print(f"install: {fault}", file=sys.stderr)
        print(
            f"install: {root} is damaged, nothing was installed; unpack the archive again",
            file=sys.stderr,
        )
        return DAMAGED
    about = verdict.about
    check_target(about["kind"], prefix)
    check_here(about, prefix)
    command = ""
    if about["kind"] == "spack":
        command = bundle_install_spack.find_spack(spack, os.environ)
    elif spack:
        raise InstallError("--spack is for a bundle of the kind spack; this one needs none")
    lock = prefix.with_name(f".{prefix.name}.lock")
    with exclusive(lock, lambda: progress("prefix", f"waiting for another run for {prefix}")):
        if command:
            said = install_spack(root, about, prefix, command, progress)
        else:
            said = install_conda(root, about, prefix, progress)
    print(f"install: ok: {about['name']} {about['version']} for {about['soc']} {said}")
    return 0


def main(arguments: Sequence[str]) -> int:
    """``ROOT`` and the options; every expected failure is one line."""
    end_as_interrupted()
    parser = Parser(
        prog="install",
        description="Install this bundle into a prefix with no network. It takes Python 3.11 and,\n"
        "of the kind spack, Spack. Every file is compared with SHA256SUMS first.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prefix", metavar="DIR", required=True, help="where to install")
    parser.add_argument(
        "--spack",
        metavar="COMMAND",
        help="the Spack to use (default: $SPACK_ROOT/bin/spack, spack)",
    )
    given = parser.parse_args(arguments[1:])
    try:
        return run(Path(arguments[0]), absolute(given.prefix), given.spack)
    except ValueError as error:
        parser.error(str(error))
    except EXPECTED as error:
        print(f"install: {' '.join(str(error).split())}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("install: interrupted; nothing is half installed, run it again", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
