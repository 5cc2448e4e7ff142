# SPDX-License-Identifier: Apache-2.0
"""Stages 1 and 2: compile or, of Huawei's, fetch, package, install and try the operators.

`csrc/build_batch_invariant_ops.sh` runs this module with the Python that the operators are for;
recipes run one stage at a time. Nothing is downloaded but Huawei's artifacts, where they are asked
for; nothing is written into the source tree; every failure ends in one line that says what to do.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from csrc.run_package import build as run_package
from vllm_ascend import soc as soc_table
from vllm_ascend.soc import cann

PROGRAM = "build_batch_invariant_ops"
CSRC = Path(__file__).resolve().parent
EXTENSION = CSRC / "torch_ops_extension"
OLDEST_CMAKE = (3, 25)
ROOM_TO_WORK = 2**20  # bytes; less than this is a full disk
VENDOR = Path("vendors") / "batch_invariant"
PROGRESS_SECONDS = 15.0  # between two lines of a long step
LOG_LINES = 15  # of a failed step's log that are shown

# Run by the Python that the wheel was installed for. Small integers have one right answer in fp32,
# whatever the order of the additions; other values show that a row ignores its neighbours.
TRY_THE_OPERATORS = """
import torch
import batch_invariant_ops

mm = torch.ops.batch_invariant_ops.npu_mm_batch_invariant
generator = torch.Generator().manual_seed(0)
a = torch.randint(-8, 9, (65, 96), generator=generator)
b = torch.randint(-8, 9, (96, 80), generator=generator)
assert torch.equal(mm(a.float(), b.float()), (a @ b).float()), "a product of integers is wrong"
a, b = torch.randn(65, 96, generator=generator), torch.randn(96, 80, generator=generator)
together = mm(a, b).view(torch.int32)
for row in range(65):
    alone = mm(a[row : row + 1], b).view(torch.int32)
    assert torch.equal(alone, together[row : row + 1]), f"row {row} depends on its neighbours"
"""


class StageError(Exception):
    """A stage cannot go on; the message is one line that says what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Official:
    """Huawei's artifacts, as the user gives them; "" for what is known."""

    run_package: str
    sha256: str
    extension: str


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for, completed with the defaults."""

    soc: soc_table.Soc
    stages: tuple[int, ...]
    install_path: Path
    """Directory whose `vendors/batch_invariant` stage 1 installs."""
    install: bool
    """False: the run package is made and left in `output`."""
    output: Path | None
    """Directory that keeps the run package and the wheel."""
    build_dir: Path | None
    """Directory to build in, kept; by default a temporary one, removed."""
    jobs: int
    official: Official | None = None
    """Whose operators: Huawei's, or with None this tree's."""

    @property
    def place(self) -> Path:
        """Where stage 1 lies when it is installed."""
        return self.install_path / VENDOR


def default_install_path() -> Path:
    """`<sys.prefix>/share/ascend/opp`, where the wheel looks after ASCEND_CUSTOM_OPP_PATH."""
    return Path(sys.prefix) / "share" / "ascend" / "opp"


def say(text: str) -> None:
    """Progress, on standard output."""
    print(text, flush=True)


# ---- what has to be there before anything is built ----------------------------------------------


def check_soc(soc: soc_table.Soc) -> None:
    """Sees that the tree has the operators' source for a SoC.

    Raises:
        StageError: it has not.
    """
    if soc.is_npu:
        raise StageError(
            f"the AscendC sources of the operators for {soc.name} ({soc.product}) are missing: this"
            f" tree does not hold them yet; take Huawei's with `bash csrc/{PROGRAM}.sh {soc.name}"
            " --provider official`, or where there is no NPU, build for cpu"
        )


def check_official(soc: soc_table.Soc) -> None:
    """Sees that Huawei's operators for a SoC can be there, and the CANN that they need is.

    Raises:
        StageError: they cannot, or it is not.
    """
    if not soc.is_npu:
        raise StageError("--provider official is for an NPU; for cpu take this tree's operators")
    try:
        cann.require(cann.find(), soc)
    except soc_table.SocError as error:
        raise StageError(f"Huawei's operators need CANN: {error}") from error


def check_cmake() -> str:
    """The path of a CMake that is new enough.

    Raises:
        StageError: there is none.
    """
    wanted = ".".join(map(str, OLDEST_CMAKE))
    found = shutil.which("cmake")
    if found is None:
        raise StageError(f"there is no cmake: install CMake {wanted} or newer")
    try:
        shown = subprocess.run([found, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise StageError(
            f"cannot run {found} ({error.strerror}): install CMake {wanted} or newer"
        ) from error
    version = re.search(r"version (\d+)\.(\d+)", shown.stdout)
    if version is None:
        raise StageError(f"{found} --version says no version: install CMake {wanted} or newer")
    if (int(version[1]), int(version[2])) < OLDEST_CMAKE:
        raise StageError(f"{found} is {version[0]}: install CMake {wanted} or newer")
    return found


def check_compiler() -> None:
    """Sees that CMake will find a C++ compiler.

    Raises:
        StageError: there is none, or $CXX names one that isn't there.
    """
    chosen = os.environ.get("CXX", "")
    if chosen:
        try:
            words = shlex.split(chosen)
        except ValueError:  # a quotation without an end
            words = []
        if not words or shutil.which(words[0]) is None:
            raise StageError(
                f"CXX is {chosen!r}, which is not a command: set it to a C++17 compiler"
            )
    elif not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        raise StageError("there is no C++ compiler: install g++ or clang++, or set CXX to one")


def generator() -> list[str]:
    """CMake's option for the build tool that is there.

    Raises:
        StageError: neither ninja nor make is.
    """
    if os.environ.get("CMAKE_GENERATOR"):
        return []
    for tool, name in (("ninja", "Ninja"), ("make", "Unix Makefiles")):
        if shutil.which(tool):
            return ["-G", name]
    raise StageError("there is neither ninja nor make: install one of them")


def check_writable(directory: Path, option: str) -> None:
    """Sees that `directory` exists or can be made, and can be written to.

    Raises:
        StageError: it can't; the line names `option` as what to change.
    """
    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise StageError(f"{existing} is not a directory: choose another place with {option}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StageError(f"cannot write to {existing}: choose another place with {option}")


def check_python() -> None:
    """Sees that this Python can build the wheel and may be installed into.

    Raises:
        StageError: torch, pip or setuptools is missing, or the environment isn't ours to change.
    """
    python = sys.executable
    managed = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and managed.exists():
        raise StageError(
            f"{python} belongs to the operating system: make a virtual environment and set PYTHON"
            " to its python"
        )
    for module in ("pip", "setuptools"):
        if importlib.util.find_spec(module) is None:
            raise StageError(
                f"{python} has no {module}: install it, or set PYTHON to another Python"
            )
    check_setuptools()
    if reason := torch_fails():
        raise StageError(
            f"{python} cannot import torch ({reason}): install torch 2.13, or set PYTHON to a"
            " Python that has it"
        )
    check_writable(Path(sysconfig.get_path("platlib")), "PYTHON (a virtual environment of yours)")


def torch_fails() -> str:
    """Why this Python cannot import torch, in one line; empty if it can."""
    tried = subprocess.run(
        [sys.executable, "-P", "-c", "import torch"], capture_output=True, text=True
    )
    if tried.returncode == 0:
        return ""
    return (tried.stderr.strip() or f"exit status {tried.returncode}").splitlines()[-1]


def check_setuptools() -> None:
    """Sees that setuptools is as new as stage 2 asks for: a virtual environment may begin with one
    that is too old.

    Raises:
        StageError: it is older.
    """
    with (EXTENSION / "pyproject.toml").open("rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    wanted = next(each for each in requires if each.startswith("setuptools"))
    found = importlib.metadata.version("setuptools")
    oldest = re.search(r">=([\d.]+)", wanted)
    if oldest and _numbers(found) < _numbers(oldest[1]):
        raise StageError(
            f"{sys.executable} has setuptools {found}: run {shlex.quote(sys.executable)} -m pip"
            f" install '{wanted}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (78, 1) for "78.1.post2"."""
    leading = re.match(r"\d*(\.\d+)*", version)
    return tuple(int(part) for part in leading[0].split(".") if part) if leading else ()


def distribution(name: str) -> importlib.metadata.Distribution | None:
    """A distribution that is installed; the source tree's own metadata does not count."""
    elsewhere = [path for path in sys.path if Path(path).resolve() != CSRC.parent]
    return next(iter(importlib.metadata.distributions(name=name, path=elsewhere)), None)


def check_not_the_plugins() -> None:
    """Sees that the operators that are installed, if any, are not part of the plugin's wheel.

    Raises:
        StageError: they are; csrc/wheel_with_operators.py put them there.
    """
    found = distribution("vllm-ascend")
    if found and any(path.parts[0] == "batch_invariant_ops" for path in found.files or ()):
        raise StageError(
            f"the operators that are installed are part of vllm-ascend {found.version}: run"
            f" {shlex.quote(sys.executable)} -m pip uninstall vllm-ascend, or install it again with"
            " VLLM_BATCH_INVARIANT=1"
        )


def check_plugin() -> None:
    """Sees that the vllm-ascend that is installed goes with the operators of this tree.

    Upstream's plugin calls them by the same names and schemas. Another version of it is not an
    error: it is one that nobody has tried with this tree, and is told so.

    Raises:
        StageError: it is this project's plugin in another version, or one that holds operators.
    """
    with (CSRC.parent / "pyproject.toml").open("rb") as file:
        ours = tomllib.load(file)["project"]["version"]
    check_not_the_plugins()
    found = distribution("vllm-ascend")
    if found is None:
        return
    if found.version != ours:
        told = f"vllm-ascend {found.version} is installed, this tree goes with {ours}: take the"
        told += f" source tree of {found.version}"
        if any(entry.value == "vllm_ascend:verify_platform" for entry in found.entry_points):
            raise StageError(f"{told}, or install this tree's vllm-ascend first")
        print(f"{PROGRAM}: warning: {told} if there is one", file=sys.stderr)


# ---- steps --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Workshop:
    """Where things are built, and how their output is kept."""

    directory: Path
    temporary: bool
    """Whether the directory, logs included, is removed in the end."""
    environ: Mapping[str, str]

    def run(self, step: str, command: Sequence[str], **env: str) -> None:
        """Runs a command with its output in a log.

        Raises:
            StageError: it failed; the end of its log has been shown, and the line names the log,
                which survives the build directory.
        """
        log = self.directory / f"{step.replace(' ', '-')}.log"
        began = time.monotonic()
        say(f"  {step} ...")
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**self.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                while True:
                    try:
                        status = process.wait(timeout=PROGRESS_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        say(f"  {step}: {time.monotonic() - began:.0f} s{_counted(log)} ...")
            except BaseException:
                _stop(process)
                raise
        if status != 0:
            self._fail(step, log, status)
        say(f"  {step}: {time.monotonic() - began:.0f} s")

    def _fail(self, step: str, log: Path, status: int) -> NoReturn:
        text = log.read_text(encoding="utf-8", errors="replace")
        print("\n".join(text.splitlines()[-LOG_LINES:]), file=sys.stderr)
        # The log may have been cut off by what it would report.
        full = shutil.disk_usage(self.directory).free < ROOM_TO_WORK
        if full or "No space left on device" in text:
            raise StageError(
                f"{step}: no space left in {self.directory}: free some, or choose another place"
                " with --build-dir or TMPDIR"
            )
        kept = _keep_log(log) if self.temporary else log
        raise StageError(f"{step} failed (exit status {status}): see {kept}")


def _counted(log: Path) -> str:
    """How far ninja or make is by its last count in a log, or nothing."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        counts = re.findall(rb"^\[ *(\d+/\d+|\d+%)\]", file.read(), re.MULTILINE)
    return f", {counts[-1].decode()}" if counts else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a build and its compilers, which write to a directory that is to be removed.

    ninja puts each compiler into a process group of its own and ends them when it is told to end:
    hence the polite signal first.
    """
    for number, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
            return


def _keep_log(log: Path) -> Path:
    """Copies a log out of a directory that may be removed; the log's own path if it can't be."""
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix=f"{PROGRAM}-", suffix=f"-{log.name}")
        os.close(descriptor)
        shutil.copyfile(log, name)
        return Path(name)
    return log


def make_run_package(plan: Plan, workshop: Workshop) -> Path:
    """Compiles stage 1 and returns the run package, in `plan.output` or the build directory.

    Raises:
        StageError: a step failed.
    """
    cmake = check_cmake()
    build, tree = workshop.directory / "stage1", workshop.directory / "stage1-tree"
    shutil.rmtree(tree, ignore_errors=True)
    workshop.run(
        "stage 1 configure",
        [
            *(cmake, "-S", str(CSRC), "-B", str(build)),
            # A build directory that is used again stays with its build tool.
            *(() if (build / "CMakeCache.txt").exists() else generator()),
            *(f"-DBI_SOC={plan.soc.name}", "-DCMAKE_BUILD_TYPE=Release"),
        ],
    )
    workshop.run("stage 1 compile", [cmake, "--build", str(build), "--parallel", str(plan.jobs)])
    workshop.run(
        "stage 1 stage", [cmake, "--install", str(build), "--prefix", str(tree), "--strip"]
    )
    output = plan.output or workshop.directory
    output.mkdir(parents=True, exist_ok=True)
    try:
        built = run_package.build(tree, plan.soc, output, version=run_package.version())
    except run_package.PackageError as error:
        raise StageError(f"stage 1 package: {error}") from error
    say(f"  stage 1 package: {built.path.name} (sha256 {built.sha256})")
    return built.path


def install_run_package(package: Path, install_path: Path) -> None:
    """Installs a run package below `install_path`.

    Raises:
        StageError: its installer refused; the line is the installer's own. Or it installed nothing.
    """
    # Huawei's adds to a directory that is named there, and fails where it names several.
    environ = {key: value for key, value in os.environ.items() if key != "ASCEND_CUSTOM_OPP_PATH"}
    install_path.mkdir(parents=True, exist_ok=True)  # which Huawei's does not
    done = subprocess.run(
        ["sh", package, "--quiet", f"--install-path={install_path}"],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise StageError(f"stage 1 install: {lines[-1].removeprefix(f'{package.name}: ')}")
    library = install_path / VENDOR / run_package.LIBRARY
    if not library.is_file():
        raise StageError(
            f"stage 1 install: {package.name} installed no {library}: it is not the run package of"
            " the batch-invariant operators"
        )


def installed_stage1(plan: Plan, environ: Mapping[str, str]) -> Path:
    """The directory of an installed stage 1, for a stage 2 that is built by itself.

    It is looked for as the wheel does, in search_path() of torch_ops_extension/src/library.cpp:
    what the wheel would not find is not accepted.

    Raises:
        StageError: there is none.
    """
    places: list[Path] = []
    for entry in filter(None, environ.get("ASCEND_CUSTOM_OPP_PATH", "").split(":")):
        # A vendor's own directory, as set_env.bash writes it, or a root of vendors.
        if entry.rstrip("/").rpartition("/")[2] == plan.place.name:
            places.append(Path(entry))
        places.append(entry / VENDOR)
    places.append(plan.place)
    if root := environ.get("ASCEND_OPP_PATH"):
        places.append(root / VENDOR)
    for place in places:
        if (place / run_package.LIBRARY).is_file():
            return place.absolute()
    raise StageError(
        f"stage 2 needs stage 1, which is neither in ASCEND_CUSTOM_OPP_PATH, {plan.place} nor"
        " ASCEND_OPP_PATH:"
        f" run {PROGRAM}.sh {plan.soc.name} --stage 1 first, or give its --install-path"
    )


def copy_of_stage2(workshop: Workshop) -> Path:
    """A copy of stage 2's sources, since setuptools writes beside what it builds."""
    copy = workshop.directory / "stage2" / "csrc"
    shutil.rmtree(copy.parent, ignore_errors=True)
    leave = shutil.ignore_patterns("build", "dist", "__pycache__", "*.egg-info", "*.so", ".*")
    shutil.copytree(CSRC, copy, ignore=leave)
    for name in ("LICENSE", "soc.toml"):
        shutil.copyfile(CSRC.parent / name, copy.parent / name)
    return copy / EXTENSION.name


def make_wheel(plan: Plan, workshop: Workshop, sources: Path) -> Path:
    """Builds stage 2 and returns the wheel.

    Raises:
        StageError: a step failed.
    """
    wheels = workshop.directory / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    workshop.run(
        "stage 2 wheel",
        [
            *(sys.executable, "-m", "pip", "wheel"),
            *("--no-build-isolation", "--no-deps", "--no-index"),
            *("--wheel-dir", str(wheels), str(sources)),
        ],
        MAX_JOBS=str(plan.jobs),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        # Of the entries in the wheel: the same as in the run package.
        SOURCE_DATE_EPOCH=os.environ.get("SOURCE_DATE_EPOCH", str(run_package.MTIME)),
    )
    (wheel,) = wheels.glob("*.whl")
    if plan.output is not None:
        plan.output.mkdir(parents=True, exist_ok=True)
        wheel = Path(shutil.copy(wheel, plan.output))
        lock(wheel)
    return wheel


def lock(wheel: Path) -> Path:
    """Writes a wheel's sha256 beside it as a requirement, for whoever carries it elsewhere.

    pip compares a file with such a hash before it unpacks it, and with nothing else: a wheel states
    a sha256 of each of its files, at which pip does not look.
    """
    name, version = wheel.name.split("-")[:2]
    path = wheel.with_name(f"{name}.txt")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(
        "# Install with:"
        f" pip install --no-deps --no-index --find-links . --require-hashes -r {path.name}\n"
        f"{name}=={version} \\\n"
        f"    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n",
        encoding="utf-8",
    )
    partial.replace(path)
    return path


def install_wheel(wheel: Path, workshop: Workshop) -> None:
    """Installs the wheel into this Python, in place of any other version of it.

    Raises:
        StageError: pip failed.
    """
    workshop.run(
        "stage 2 install",
        [
            *(sys.executable, "-m", "pip", "install"),
            *("--no-deps", "--no-index", "--force-reinstall", str(wheel)),
        ],
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_USER="0",  # never beside the environment that was asked for
    )


def try_operators(place: Path, workshop: Workshop, **env: str) -> None:
    """Imports batch_invariant_ops with the stage 1 in `place` and compares results.

    `env` is added to the environment; with PYTHONPATH the package need not be installed.

    Raises:
        StageError: the import failed or a result is wrong.
    """
    before = workshop.environ.get("ASCEND_CUSTOM_OPP_PATH", "").split(":")
    entries = [str(place), *(entry for entry in before if entry and entry != str(place))]
    workshop.run(
        "try the operators",
        [sys.executable, "-P", "-c", TRY_THE_OPERATORS],
        ASCEND_CUSTOM_OPP_PATH=":".join(entries),
        **env,
    )


@contextlib.contextmanager
def workshop_for(plan: Plan) -> Iterator[Workshop]:
    """The directory to build in: `plan.build_dir`, or a temporary one that is removed."""
    with contextlib.ExitStack() as stack:
        if plan.build_dir is not None:
            check_writable(plan.build_dir, "--build-dir")
            plan.build_dir.mkdir(parents=True, exist_ok=True)
            directory = plan.build_dir.resolve()
        else:
            made = tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(made)).resolve()
        # What compilers and pip would leave in TMPDIR when they are killed goes with the rest.
        temporary = directory / "tmp"
        temporary.mkdir(exist_ok=True)
        environ = {**os.environ, "TMPDIR": str(temporary)}
        yield Workshop(directory, plan.build_dir is None, environ)


def execute(plan: Plan) -> None:
    """Runs the plan.

    Raises:
        StageError: a stage failed; no later one has been begun.
        OSError: a file could not be read or written.
    """
    if plan.official:
        check_official(plan.soc)
    else:
        check_soc(plan.soc)
    # Everything that can be known beforehand, before minutes are spent.
    if 1 in plan.stages:
        if not plan.official:
            check_cmake()
            check_compiler()
            generator()
        if plan.install:
            if ":" in str(plan.install_path):
                raise StageError(
                    f"{plan.install_path}: ASCEND_CUSTOM_OPP_PATH cannot list a path with a colon:"
                    " choose another place with --install-path"
                )
            check_writable(plan.install_path, "--install-path")
    place = plan.place if 1 in plan.stages else installed_stage1(plan, os.environ)
    if 2 in plan.stages:
        check_python()
    if plan.install and (2 in plan.stages or plan.install_path == default_install_path()):
        check_plugin()
    if plan.output is not None:
        check_writable(plan.output, "--output")
    os.umask(0o022)  # a shared prefix is readable by others whatever the caller's umask is
    with workshop_for(plan) as workshop:
        if plan.official:
            execute_official(plan, plan.official, workshop)
            return
        if 1 in plan.stages:
            package = make_run_package(plan, workshop)
            if plan.install:
                install_run_package(package, plan.install_path)
                say(f"  stage 1 installed in {place}")
        if 2 in plan.stages:
            wheel = make_wheel(plan, workshop, copy_of_stage2(workshop))
            install_wheel(wheel, workshop)
            try_operators(place, workshop)


def execute_official(plan: Plan, given: Official, workshop: Workshop) -> None:
    """Runs the plan with Huawei's artifacts. They are all there and compared before one is used.

    Raises:
        StageError: one cannot be had or is another, or a stage failed; no later one has been begun.
    """
    from csrc import official  # not in the packages' sources

    try:
        wanted = []
        if 1 in plan.stages:
            wanted.append(official.run_package(plan.soc, given.run_package, given.sha256))
        if 2 in plan.stages:
            wanted.append(official.extension(given.extension))
        files = [official.fetch(artifact, workshop.directory, say) for artifact in wanted]
        if 1 in plan.stages:
            package = files.pop(0)
            if plan.output:
                plan.output.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(package, plan.output / package.name)
            if plan.install:
                install_run_package(package, plan.install_path)
                say(f"  stage 1 installed in {plan.place}")
        if 2 in plan.stages:
            sources = official.unpack(files.pop(), workshop.directory / "stage2")
            install_wheel(make_wheel(plan, workshop, sources), workshop)
    except official.OfficialError as error:
        raise StageError(str(error)) from error
    if 2 in plan.stages:
        say("  not tried: call an operator on a machine with the NPU")


# ---- and back -----------------------------------------------------------------------------------


def remove(stages: Sequence[int], install_path: Path) -> None:
    """Removes what the script installed, the later stage first.

    Raises:
        StageError: nothing is installed, it is not the script's, or it cannot be removed.
    """
    place = install_path / VENDOR
    uninstall = place / "scripts/uninstall.sh"
    done = False
    for stage in sorted(stages, reverse=True):
        if stage == 2 and distribution("batch_invariant_ops"):
            check_not_the_plugins()
            _undo(2, [sys.executable, "-m", "pip", "uninstall", "--yes", "batch_invariant_ops"])
            say("  stage 2 removed: batch_invariant_ops")
            done = True
        if stage == 1 and uninstall.is_file():
            _undo(1, [str(uninstall)])
            say(f"  stage 1 removed: {place}")
            if install_path == default_install_path():
                for folder in (install_path, *install_path.parents[:2]):
                    with contextlib.suppress(OSError):  # not empty, or gone
                        folder.rmdir()
            done = True
    if not done:
        sought = {1: f"stage 1 in {place}", 2: f"batch_invariant_ops in {sys.executable}"}
        raise StageError(f"there is no {' and no '.join(sought[stage] for stage in stages)}")


def _undo(stage: int, command: Sequence[str]) -> None:
    """Raises StageError, with the last line of what the command said, where it fails."""
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace")
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise StageError(f"stage {stage} cannot be removed: {lines[-1]}")


# ---- command line -------------------------------------------------------------------------------


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line instead of showing the whole usage."""

    def error(self, message: str) -> NoReturn:
        """Prints the line and exits with status 2."""
        self.exit(2, f"{PROGRAM}: {message}; see --help\n")


def directory(text: str) -> Path:
    """An argument that names a directory: not the empty text of an unset variable, which to Path
    is the current one."""
    if not text:
        raise argparse.ArgumentTypeError("needs a directory")
    return Path(text)


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line; exits as argparse does."""
    parser = OneLineParser(
        prog=f"{PROGRAM}.sh",
        allow_abbrev=False,
        description="Build and install the batch-invariant operators: stage 1, the operator run"
        " package, then stage 2, the wheel batch_invariant_ops, for the Python in $PYTHON (python3"
        " by default).",
        epilog=f"Examples: PYTHON=venv/bin/python bash csrc/{PROGRAM}.sh cpu; bash"
        f" csrc/{PROGRAM}.sh a3 --provider official",
    )
    parser.add_argument(
        "soc",
        nargs="?",
        metavar="SOC",
        help=f"{soc_table.table().accepted()}, or any other spelling of one; by default cpu where"
        " there is neither an NPU nor CANN",
    )
    parser.add_argument(
        "--install-path",
        type=directory,
        metavar="DIR",
        help="install stage 1 into DIR/vendors/batch_invariant (default:"
        " <sys.prefix>/share/ascend/opp of that Python)",
    )
    parser.add_argument("--stage", type=int, choices=(1, 2), help="one stage only")
    parser.add_argument(
        "--run-package-only",
        action="store_true",
        help="make the run package of stage 1, install nothing",
    )
    parser.add_argument(
        "--output",
        "-o",
        type=directory,
        metavar="DIR",
        help="keep the run package, the wheel and, for pip, the wheel's sha256 in DIR",
    )
    parser.add_argument(
        "--build-dir",
        type=directory,
        metavar="DIR",
        help="build in DIR and keep it (default: a temporary directory in $TMPDIR)",
    )
    parser.add_argument(
        "--jobs",
        "-j",
        type=int,
        metavar="N",
        default=len(os.sched_getaffinity(0)),
        help="compile N files at a time (default: the processors this process may use)",
    )
    parser.add_argument(
        "--provider",
        choices=("source", "official"),
        default="source",
        help="whose operators: this tree's (default), or for an NPU Huawei's prebuilt ones",
    )
    parser.add_argument(
        "--official",
        metavar="FILE_OR_URL",
        help="Huawei's run package, where its sha256 is not known or its place is another",
    )
    parser.add_argument("--sha256", metavar="HEX", help="the sha256 of Huawei's run package")
    parser.add_argument(
        "--official-extension",
        metavar="FILE_OR_URL",
        help="Huawei's sources of stage 2, where there is no network",
    )
    parser.add_argument(
        "--uninstall",
        action="store_true",
        help="remove what the script installed: the wheel from that Python, stage 1 from where it"
        " is by default or from --install-path",
    )
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs: expected a number from 1, found {options.jobs}")
    if options.run_package_only and (options.stage == 2 or options.install_path):
        parser.error("--run-package-only installs nothing and has no stage 2")
    given = (options.official, options.sha256, options.official_extension)
    if options.provider != "official" and any(given):
        parser.error("--official, --sha256 and --official-extension need --provider official")
    if options.uninstall and (options.run_package_only or options.output or options.build_dir):
        parser.error("--uninstall builds nothing: it takes --stage and --install-path alone")
    return options


def parse(arguments: Sequence[str] | None) -> Plan:
    """The plan that a command line states; exits as argparse does.

    Raises:
        SocError: the SoC is unknown, unsupported, or not given and not to be told.
    """
    return planned(read(arguments))


def planned(options: argparse.Namespace) -> Plan:
    """The options completed with the defaults.

    Raises:
        SocError: the SoC is unknown, unsupported, or not given and not to be told.
    """
    stages = (1,) if options.run_package_only else (options.stage,) if options.stage else (1, 2)
    output = options.output or (Path() if options.run_package_only else None)
    named = options.soc is not None
    return Plan(
        soc=soc_table.resolve(options.soc) if named else soc_table.default(),
        stages=stages,
        install_path=(options.install_path or default_install_path()).absolute(),
        install=not options.run_package_only,
        output=output.absolute() if output else None,
        build_dir=options.build_dir.absolute() if options.build_dir else None,
        jobs=options.jobs,
        official=Official(
            options.official or "", options.sha256 or "", options.official_extension or ""
        )
        if options.provider == "official"
        else None,
    )


def _stopped(number: int, _frame: object) -> NoReturn:
    """Ends on a signal as on an error: temporary directories are removed."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 0, or 1 with one line on standard error."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    try:
        options = read(arguments)
        if options.uninstall:
            root = options.install_path or default_install_path()
            remove((options.stage,) if options.stage else (1, 2), root.absolute())
            say(f"{PROGRAM}: ok")
            return 0
        plan = planned(options)
        what = " and ".join(f"stage {number}" for number in plan.stages)
        say(f"{PROGRAM}: {what} for soc={plan.soc.name}, {sys.executable}")
        execute(plan)
    except (StageError, soc_table.SocError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = ": free some space, or choose another place with --build-dir or TMPDIR"
        print(f"{PROGRAM}: {error}{hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    say(f"{PROGRAM}: ok")
    if plan.install and 1 in plan.stages and plan.install_path != default_install_path():
        say(f"to use it: source {shlex.quote(str(plan.place / 'bin' / 'set_env.bash'))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
