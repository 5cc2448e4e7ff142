# SPDX-License-Identifier: Apache-2.0
"""The first half of ``scripts/bundle``: options, what the machine must have, and ``--verify``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from provision.bundle_mirror import archives
from provision.bundle_verify import BundleError, verify
from provision.first_half import ERROR, INTERRUPTED, TREE, Parser, go_on, refused
from provision.preflight import COLD_BYTES, check_folder, check_machine, check_python, failures
from provision.progress import Progress
from provision.state import VARIABLE, absolute, file_sha256, state_folder, write_json
from provision.toolchain import find_cmake, find_compiler

LOCKS = ("channel-tools", "sbom")
KINDS = ("conda", "spack")
FAULTY = 1

_DESCRIPTION = """\
Make one archive from which batch-invariant vLLM is installed where there is no network: a conda
channel of vllm-ascend for one SoC and all it needs, the installer, this tree, its lock files,
SHA256SUMS and a software bill of materials (CycloneDX). There, with Python 3.11 alone:

  tar -xf FILE && bash <the folder>/install --prefix DIR

With --kind spack it holds what Spack needs instead: its externals' wheels, a source mirror, the
recipes and the site's files. The same command then installs by the Spack that is there.

The same sources on the same machine give the same bytes. With --verify, check such an archive, or
the folder that it was unpacked to: one line for each fault."""
_EPILOG = f"""\
exit codes: 0 made, or as it was made; 1 --verify found a fault; 3 could not be run
environment: PYTHON (the Python 3.11 to use), {VARIABLE} (default of --state), CC, CXX,
  BI_DOWNLOADS, SOURCE_DATE_EPOCH (the time of the files in the archive)

examples:
  ./scripts/bundle cpu --output vllm-ascend-cpu.tar
  ./scripts/bundle --verify vllm-ascend-cpu.tar
  ./scripts/bundle 910b --downloads DIR --cann DIR"""


@dataclass(frozen=True)
class Options:
    """What was asked for; handed to the second half as JSON."""

    soc: str
    kind: str
    state: str
    # Of an NPU: the folders that --downloads and --cann name; "" for cpu.
    downloads: str
    cann: str
    # Of the kind spack: the folder that --mirror names, or "".
    mirror: str
    # "" for a name of its own in the state folder.
    output: str
    json: str
    # Seconds since 1970, the time of all files; None for that of everything else made here.
    clock: int | None
    started: float


def clock_of(environment: dict[str, str]) -> int | None:
    """SOURCE_DATE_EPOCH, if it is set.

    Raises:
        ValueError: it is no number of seconds.
    """
    text = environment.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    # A tar's header has 11 octal digits.
    if not (text.isascii() and text.isdigit()) or int(text) >= 8**11:
        raise ValueError(f"SOURCE_DATE_EPOCH is {text!r}: expected seconds since 1970, or unset it")
    return int(text)


def check_output(text: str, option: str) -> Path:
    """A file that is to be written, as an absolute path.

    Raises:
        ValueError: its folder does not exist or cannot be written to, or it is a folder.
    """
    path = absolute(text)
    if not path.parent.is_dir():
        raise ValueError(f"{option} {text}: its folder does not exist")
    if path.is_dir():
        raise ValueError(f"{option} {text}: it is a folder; give a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"{option} {text}: cannot write to {path.parent}")
    return path


@contextlib.contextmanager
def imports_of_the_tree() -> Iterator[None]:
    """Lets the product itself be imported, which the tools' own environment lacks."""
    sys.path.append(str(TREE))
    try:
        yield
    finally:
        sys.path.remove(str(TREE))


def resolved(name: str) -> str:
    """The row of soc.toml that a SoC's name stands for.

    Raises:
        ValueError: none.
    """
    with imports_of_the_tree():
        from vllm_ascend import soc
    try:
        return soc.resolve(name).name
    except soc.SocError as error:
        raise ValueError(str(error)) from None


def check_folders(soc: str, kind: str, given: dict[str, str]) -> dict[str, str]:
    """The folders that --downloads, --cann and --mirror name, as absolute paths or "".

    Raises:
        ValueError: one is missing, is no folder, or is for another SoC or kind.
        BundleError: the mirror has no archive.
    """
    if soc == "cpu" and (given["--downloads"] or given["--cann"]):
        raise ValueError("--downloads and --cann are for an NPU; cpu takes neither")
    for option, its_kind in (("--cann", "conda"), ("--mirror", "spack")):
        if given[option] and kind != its_kind:
            raise ValueError(f"{option} is for --kind {its_kind}")
    for option, text in given.items():
        if text and not absolute(text).is_dir():
            raise ValueError(f"{option} {text}: there is no such folder")
    if given["--mirror"]:
        # Before hundreds of megabytes are downloaded that go into no bundle.
        archives(absolute(given["--mirror"]))
    needed = {"conda": ("--downloads", "--cann"), "spack": ("--downloads",)}[kind]
    for option in needed:
        if soc != "cpu" and not given[option]:
            raise ValueError(f"{soc} needs {option} DIR: see recipes/conda/README.md")
    return {option: str(absolute(text)) if text else "" for option, text in given.items()}


def parser() -> Parser:
    """The command line's."""
    made = Parser(
        prog="bundle",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("soc", nargs="?", metavar="SOC", help="for which SoC (cpu, 910b, …)")
    made.add_argument("--kind", choices=KINDS, default="conda", help="what it is installed by")
    made.add_argument(
        "--output", metavar="FILE", help="the archive (default: STATE/<name and version>.tar)"
    )
    made.add_argument(
        "--downloads",
        metavar="DIR",
        help="for an NPU: Huawei's two artifacts, vLLM's sources, torch-npu's wheel, as "
        "recipes/conda/README.md says (default: $BI_DOWNLOADS)",
    )
    made.add_argument(
        "--cann", metavar="DIR", help="for an NPU by conda: a local copy of Huawei's channel"
    )
    made.add_argument(
        "--mirror",
        metavar="DIR",
        help="for spack: a Spack source mirror whose archives are to come along",
    )
    made.add_argument("--json", metavar="FILE", help="write the result here too")
    made.add_argument("--verify", metavar="PATH", help="check an archive or an unpacked one")
    made.add_argument(
        "--state", metavar="DIR", help="folder for everything made on the way (default: build/)"
    )
    return made


def check(place: Path, result: Path | None) -> int:
    """``--verify``: one line a fault; the exit code."""
    with imports_of_the_tree():
        from vllm_ascend.standard_output import written
    verdict = verify(place)
    digest = file_sha256(place) if place.is_file() else None
    if result is not None:
        found = {"faults": verdict.faults, "files": len(verdict.sha256), "sha256": digest}
        write_json(result, found)

    def say() -> int:
        for fault in verdict.faults:
            print(f"bundle: {fault}")
        if verdict.faults:
            return FAULTY
        about = verdict.about
        print(
            f"bundle: ok: {about['name']} {about['version']} for {about['soc']} ({about['kind']}), "
            f"{len(verdict.sha256)} files" + (f", sha256 {digest}" if digest else "")
        )
        return 0

    return written("bundle", ERROR, say)


def main(arguments: Sequence[str]) -> int:
    """Verify; or check, bootstrap, and go on in the tools' environment, whence nothing returns."""
    reader = parser()
    given = reader.parse_args(arguments)
    environment = dict(os.environ)
    if given.soc is None and given.verify is None:
        reader.error("expected a SOC, or --verify with a path")
    if given.soc is not None and given.verify is not None:
        reader.error(
            f"expected a SOC or --verify, found both: leave {given.soc} out to check"
            f" {given.verify}, or --verify to make an archive"
        )
    try:
        result = check_output(given.json, "--json") if given.json else None
        if given.verify is not None:
            if given.output:
                reader.error("--verify makes nothing: it takes --json alone")
            return check(absolute(given.verify), result)
        state = state_folder(TREE, given.state, environment)
        output = check_output(given.output, "--output") if given.output else ""
        soc = resolved(given.soc)
        named = given.downloads or (environment.get("BI_DOWNLOADS") if soc != "cpu" else "")
        folders = check_folders(
            soc,
            given.kind,
            {
                "--downloads": named or "",
                "--cann": given.cann or "",
                "--mirror": given.mirror or "",
            },
        )
        options = Options(
            soc=soc,
            kind=given.kind,
            downloads=folders["--downloads"],
            cann=folders["--cann"],
            mirror=folders["--mirror"],
            state=str(state.root),
            output=str(output),
            json=str(result or ""),
            clock=clock_of(environment),
            started=time.time(),
        )
    except ValueError as error:
        reader.error(str(error))
    except BundleError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return ERROR
    warm = state.wheels.exists() and state.stages_for(options.soc).exists()
    missing = failures(
        [
            lambda: check_machine(platform.system(), platform.machine()),
            lambda: check_python(sys.version_info[:2], ("venv", "ensurepip")),
            # Spack compiles on the other machine.
            *(
                (lambda: find_compiler("cxx", environment), lambda: find_cmake(environment))
                if options.kind == "conda"
                else ()
            ),
            # What quickstart takes, with the archive in the prefix's place; of the kind spack,
            # wheels and archive.
            lambda: check_folder(
                state.root, COLD_BYTES // (6 if warm else 1 if options.kind == "conda" else 3)
            ),
        ]
    )
    if refused("bundle", missing):
        return ERROR
    progress = Progress(options.started)
    return go_on("bundle", state, progress, json.dumps(asdict(options)), locks=LOCKS)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("bundle: interrupted; run it again to continue", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
