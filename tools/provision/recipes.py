# SPDX-License-Identifier: Apache-2.0
"""Build this tree's recipes into a channel, reusing what is unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rattler_build import (
    PlatformConfig,
    RenderConfig,
    RenderedVariant,
    Stage0Recipe,
    ToolConfiguration,
    VariantConfig,
)

from provision import conda_archive
from provision.progress import Progress
from provision.standin import Built, native_subdir
from provision.state import file_sha256

# In the order in which one needs the other.
STAGES = ("ascend-soc", "ascendc-batch-invariant-ops", "batch-invariant-ops", "vllm", "vllm-ascend")
# Which of them each needs.
NEEDS = {
    "ascend-soc": (),
    "ascendc-batch-invariant-ops": ("ascend-soc",),
    "batch-invariant-ops": ("ascend-soc", "ascendc-batch-invariant-ops"),
    "vllm": (),
    "vllm-ascend": STAGES[:4],
}
# Of an NPU: between stage 1 and stage 2, which is compiled against it.
TORCH_NPU = "torch-npu"
# The folder that recipes look in for what is downloaded.
DOWNLOADS = "BI_DOWNLOADS"
# vLLM is 0.5 GB unpacked and the package stays on this machine: see conda_archive.LEVEL.
COMPRESSION = "conda:1"
# How often a build under way is told of.
_BEAT_SECONDS = 20.0
_PATIENCE_SECONDS = 3.0


def stages_of(soc: str) -> tuple[str, ...]:
    """The recipes that a SoC takes, in the order in which one needs the other."""
    return STAGES if soc == "cpu" else (*STAGES[:2], TORCH_NPU, *STAGES[2:])


def needs_of(name: str, soc: str) -> tuple[str, ...]:
    """Which of them a recipe needs."""
    if name == TORCH_NPU:
        return ()
    needs: tuple[str, ...] = NEEDS[name]
    return (*needs, TORCH_NPU) if soc != "cpu" and STAGES[2] in (name, *needs) else needs


class RecipeError(RuntimeError):
    """A recipe did not build; one line says where to read on."""


def render(tree: Path, name: str, subdir: str) -> list[RenderedVariant]:
    """Every variant of a recipe for one platform, as variants.yaml asks for them."""
    folder = tree / "recipes" / "conda"
    recipe = Stage0Recipe.from_file(folder / name / "recipe.yaml")
    config = RenderConfig(platform=PlatformConfig(target_platform=subdir))
    variants: list[RenderedVariant] = recipe.render(
        VariantConfig.from_file(folder / "variants.yaml"), config
    )
    return variants


def variant_for(tree: Path, name: str, soc: str, subdir: str) -> RenderedVariant:
    """The variant of a recipe that a prefix for ``soc`` takes."""
    cpu = soc == "cpu"
    wanted = {
        "soc": soc,
        "vllm_device": "cpu" if cpu else "empty",
        "provider": "source" if cpu else "official",
    }
    chosen = [
        variant
        for variant in render(tree, name, subdir)
        if all(str(variant.variant.get(key, value)) == value for key, value in wanted.items())
    ]
    if len(chosen) != 1:
        raise RecipeError(f"{name}: {len(chosen)} variants for soc={soc} on {subdir}, expected one")
    return chosen[0]


def _environment_of(variant: RenderedVariant) -> list[str]:
    """The specs of the environments that a recipe is built in."""
    requirements = variant.recipe.to_dict().get("requirements", {})
    return [str(s) for key in ("build", "host") for s in requirements.get(key, ())]


def source_files(tree: Path, name: str, variant: RenderedVariant) -> Iterator[Path]:
    """Every file the recipe is built from, its own folder included, sorted within each source."""
    folder = tree / "recipes" / "conda"
    roots = [folder / name, folder / "variants.yaml"]
    for source in variant.recipe.sources:
        path = Path(str(_path_of(source.to_dict())))
        roots.append(path if path.is_absolute() else folder / name / path)
    for root in roots:
        if root.is_file():
            yield root
            continue
        for path in sorted(root.rglob("*")):
            skipped = {"__pycache__", "build", "dist"} & set(path.relative_to(root).parts)
            if path.is_file() and not skipped and not path.name.endswith((".pyc", ".so", ".run")):
                yield path


def _path_of(source: dict[str, Any]) -> str:
    """The path of a rendered path source, however deep the rendering nests it."""
    if "path" in source:
        return str(source["path"])
    [inner] = source.values()
    return _path_of(inner)


def inputs_digest(
    tree: Path, name: str, variant: RenderedVariant, needs: Iterable[Built], channel: str
) -> str:
    """Changes when anything does that the package is made from.

    channel   the identity of the channel that build and host environments come from
    """
    digest = hashlib.sha256(f"{name}\0{channel}\0{sorted(variant.variant.items())}\n".encode())
    for path in source_files(tree, name, variant):
        digest.update(f"{os.path.relpath(path, tree)}\0{file_sha256(path)}\n".encode())
    for built in needs:
        digest.update(f"{built.file}\0{built.sha256}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Stamp:
    """What a built package was made from, beside the package."""

    inputs: str
    built: dict[str, Any]


def _read_stamp(stages: Path, name: str, inputs: str) -> Built | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        stamp = Stamp(**json.loads((stages / ".stamps" / f"{name}.json").read_text()))
        built = Built(**stamp.built)
        path = stages / built.subdir / built.file
        if stamp.inputs == inputs and file_sha256(path) == built.sha256:
            return built
    return None


def _write_stamp(stages: Path, name: str, stamp: Stamp) -> None:
    folder = stages / ".stamps"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{name}.{os.getpid()}.partial"
    partial.write_text(json.dumps(asdict(stamp), sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(folder / f"{name}.json")


class _Log:
    """Writes what the build prints to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", errors="replace")

    def on_download_start(self, event: object) -> None:
        """Nothing to tell: the channel is local, or a solver's own cache."""

    def on_download_progress(self, event: object) -> None:
        """See on_download_start."""

    def on_download_complete(self, event: object) -> None:
        """See on_download_start."""

    def on_build_step(self, event: Any) -> None:
        """A step began."""
        self._file.write(f"== {event.step_name}: {event.message}\n")
        self._file.flush()

    def on_log(self, event: Any) -> None:
        """A line of the build's output."""
        self._file.write(f"{event.message}\n")
        self._file.flush()


def build_here(
    tree: Path, name: str, soc: str, output: Path, channels: Sequence[str], log: Path
) -> None:
    """Build one recipe in this process; the package lands in ``output/<subdir>``."""
    variant = variant_for(tree, name, soc, native_subdir())
    # Not tested here: each test would take a copy of torch and all that goes with it. The packages'
    # tests run in the prefix that they were built for, see provision.package_tests.
    tools = ToolConfiguration(test_strategy="skip", use_zstd=False, use_bz2=False)
    variant.run_build(
        tool_config=tools,
        output_dir=output,
        channels=list(channels),
        progress_callback=_Log(log),
        no_build_id=True,
        package_format=COMPRESSION,
        # Rendered, a recipe names the paths of the build.
        no_include_recipe=True,
    )
    for package in output.glob("*/*.conda"):
        conda_archive.seal(package)


def build(
    tree: Path,
    name: str,
    soc: str,
    stages: Path,
    *,
    channels: Sequence[str],
    identity: Callable[[list[str]], str],
    needs: Sequence[Built],
    logs: Path,
    environment: dict[str, str],
    running: set[int],
    progress: Progress,
) -> Built:
    """The package of one recipe in the channel ``stages``: built, or reused.

    identity   a digest of what the channels give for an environment with these packages

    The build runs in a process of its own: it may crash without taking the caller along, and two
    can run at once; ``running`` holds its process group while it does. The caller writes the
    channel's index.
    """
    variant = variant_for(tree, name, soc, native_subdir())
    inputs = inputs_digest(tree, name, variant, needs, identity(_environment_of(variant)))
    reused = _read_stamp(stages, name, inputs)
    if reused is not None:
        progress("recipes", f"{name}: unchanged, reused")
        return reused
    progress("recipes", f"{name}: building")
    started = time.monotonic()
    scratch = stages.parent / "recipe-builds" / name
    shutil.rmtree(scratch, ignore_errors=True)
    log = logs / f"{name}.log"
    command = [sys.executable, "-m", "provision.recipes", str(tree), name, soc, str(scratch)]
    command += [str(log), *channels]
    code, output = _run_group(
        command, environment, running, lambda: progress("recipes", f"{name}: {_last_line(log)}")
    )
    found = sorted(scratch.glob("*/*.conda"))
    if code or len(found) != 1:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            file.write(output)
        raise RecipeError(f"{name} did not build: {_reason(log)}; the whole log is {log}")
    [package] = found
    subdir = package.parent.name
    target = stages / subdir / package.name
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in (stages / "noarch", stages / native_subdir()):
        for path in old.glob(f"{name}-*.conda"):
            if path.name.rsplit("-", 2)[0] == name:
                path.unlink()
    # Built under a temporary file's mode; a channel is read by others.
    package.chmod(0o644)
    package.replace(target)
    shutil.rmtree(scratch)
    version, build_string = package.name.removesuffix(".conda").rsplit("-", 2)[1:]
    built = Built(
        name=name,
        version=version,
        build=build_string,
        subdir=subdir,
        file=target.name,
        sha256=file_sha256(target),
        size=target.stat().st_size,
    )
    _write_stamp(stages, name, Stamp(inputs, asdict(built)))
    progress("recipes", f"{name}: built in {time.monotonic() - started:.0f} s")
    return built


def end_groups(running: set[int]) -> None:
    """End the process groups of builds under way.

    Asked first, since ninja's compilers are in groups of their own that it alone ends; made to
    after _PATIENCE_SECONDS.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for group in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(0.05)
            os.killpg(group, signal.SIGKILL)


def _run_group(
    command: Sequence[str],
    environment: dict[str, str],
    running: set[int],
    beat: Callable[[], None],
) -> tuple[int, bytes]:
    """Run a command in a process group of its own, none of which outlives this call.

    ``beat`` is called every _BEAT_SECONDS meanwhile.
    """
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        running.add(process.pid)
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_BEAT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    beat()
        finally:
            end_groups({process.pid})
            running.discard(process.pid)
    return process.returncode, output


def _die_with_parent() -> None:
    """End this process group when the parent is gone, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        # Not SIGKILL: see end_groups.
        os.killpg(os.getpgrp(), signal.SIGTERM)

    if os.getpgrp() == os.getpid():
        threading.Thread(target=watch, daemon=True).start()


def _last_line(log: Path) -> str:
    """What a build printed last, to show that it goes on."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    return next((line.strip()[:90] for line in reversed(lines) if line.strip()), "starting")


def _reason(log: Path) -> str:
    """The last line of a log that looks like a reason."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line]
    marked = [line for line in lines if "error" in line.lower()]
    return (marked or lines or ["it printed nothing"])[-1]


def main(arguments: Sequence[str]) -> None:
    """``TREE NAME SOC OUTPUT LOG CHANNEL…``: what build() starts."""
    tree, name, soc, output, log, *channels = arguments
    _die_with_parent()
    code = 0
    try:
        build_here(Path(tree), name, soc, Path(output), channels, Path(log))
    except Exception as error:
        print(f"error: {error}")
        code = 1
    # The library's threads may crash an interpreter that shuts down in good order.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
