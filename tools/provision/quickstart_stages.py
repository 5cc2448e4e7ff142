# SPDX-License-Identifier: Apache-2.0
"""The second half of ``scripts/quickstart``: channel, recipes, prefix, quick check, check."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from provision import (
    channel_choice,
    conda_index,
    download,
    lockfile,
    package_tests,
    prefix,
    recipes,
    relock,
    standin,
    toolchain,
)
from provision.conda_names import UntranslatableError
from provision.ending import end_as_interrupted, leave
from provision.first_half import ERROR, INTERRUPTED, TREE
from provision.interpreter import InterpreterError
from provision.prefix_stamp import Installed, PrefixError, check_replaceable
from provision.preflight import PreflightError, check_machine, one_line
from provision.progress import Progress
from provision.quickstart import Options
from provision.standin import Built
from provision.state import State, exclusive, write_json

SOC = "cpu"
PACKAGE = "vllm-ascend"
# The guide's, word for word; README.md shows it too.
QUICK_CHECK = '''python -c "
import batch_invariant_ops
import torch
op = torch.ops.batch_invariant_ops.npu_matmul_batch_invariant
print(op)
assert 'npu_matmul_batch_invariant' in str(op)
"'''
MODELS = ("qwen3", "qwen3-moe")
# Exit codes of `check`.
CHECK_WORDS = {0: "ok", 1: "a difference", 2: "inconclusive", 3: "check could not be run"}

EXPECTED = (
    download.DownloadError,
    InterpreterError,
    lockfile.LockError,
    package_tests.PackageTestError,
    PreflightError,
    PrefixError,
    recipes.RecipeError,
    toolchain.ToolchainError,
    UntranslatableError,
    OSError,
)


class QuickstartError(RuntimeError):
    """A step in the finished prefix failed; one line says which."""


@dataclass
class Timing:
    """Seconds of each step, in order."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        begun = time.time()
        yield
        self.seconds[name] = time.time() - begun


def locked_pins() -> list[lockfile.Pin]:
    """What the stand-in channel is made from: the runtime closure and the build tools."""
    pins: dict[str, lockfile.Pin] = {}
    for name in ("runtime-cpu", "build", "build-npu"):
        for pin in lockfile.read(TREE / "locks" / f"{name}.txt"):
            pins[pin.name] = pin
    return list(pins.values())


def left_out() -> frozenset[str]:
    """Requirements that locks/plan.toml leaves out of the runtime closure."""
    _, _, plans = relock.read_plan(TREE / "locks" / "plan.toml")
    [runtime] = [plan for plan in plans if plan.name == "runtime-cpu"]
    return runtime.without


def make_standin(
    state: State, environment: Mapping[str, str], progress: Progress
) -> tuple[list[Built], dict[str, Path]]:
    """The stand-in channel and the wheels it is made from; the caller holds the state's lock."""
    pins = locked_pins()
    files = download.download(pins, state.wheels, lambda text: progress("wheels", text))
    plans = standin.plan(pins, files, left_out(), environment)
    return standin.assemble(state.standin, plans, progress), files


def only_vllm_wheel(state: State, progress: Progress) -> None:
    """The one wheel that a recipe packages, where everything else comes from conda-forge."""
    pins = [pin for pin in locked_pins() if pin.name in standin.FROM_RECIPES]
    download.download(pins, state.wheels, lambda text: progress("wheels", text))


def build_recipes(
    state: State,
    third_party: str,
    environment: Mapping[str, str],
    progress: Progress,
    soc: str = SOC,
    more: Sequence[str] = (),
    downloads: str = "",
) -> list[Built]:
    """Every recipe's package for a SoC in the channel ``state.stages_for(soc)``.

    vllm, which needs none of the others and is repackaged rather than compiled, is made beside
    stages 1 and 2.

    more        further channels
    downloads   a digest of what the environment's BI_DOWNLOADS holds, where it names a folder
    """
    stages = state.stages_for(soc)
    child = {recipes.DOWNLOADS: str(state.wheels)} if not downloads else {}
    child = {**environment, **child, "RATTLER_CACHE_DIR": str(state.cache)}
    conda_index.write(stages)

    def identity(names: Sequence[str]) -> str:
        ours = third_party == state.standin.as_uri()
        return (conda_index.closure(state.standin, names) if ours else third_party) + downloads

    def make(name: str, channels: Sequence[str], done: Mapping[str, Built]) -> Built:
        return recipes.build(
            TREE,
            name,
            soc,
            stages,
            channels=[*channels, third_party, *more],
            identity=identity,
            needs=[done[need] for need in recipes.needs_of(name, soc)],
            logs=state.logs,
            environment=child,
            running=running,
            progress=progress,
        )

    running: set[int] = set()
    built: dict[str, Built] = {}
    with ThreadPoolExecutor(1) as pool:
        vllm = pool.submit(make, "vllm", [], {})
        try:
            for name in recipes.stages_of(soc):
                if name == "vllm":
                    built[name] = vllm.result()
                else:
                    built[name] = make(name, [stages.as_uri()], built)
                conda_index.write(stages)
        except BaseException:
            # Else leaving the pool would wait for the other build's end.
            recipes.end_groups(running)
            raise
    return list(built.values())


def test_packages(
    built: Sequence[Built],
    state: State,
    target: Path,
    environment: Mapping[str, str],
    progress: Progress,
) -> None:
    """Run the tests that our packages carry, unless these passed in this very prefix before."""
    passed = target / "conda-meta" / "batch-invariant-tested"
    if passed.exists():
        progress("tests", "the packages' own tests passed in this prefix before")
        return
    for item in built:
        archive = state.stages / item.subdir / item.file
        count = package_tests.run(archive, target, environment)
        progress("tests", f"{item.name}: {count} passed")
    passed.touch()


def run_in(
    environment: Mapping[str, str], what: str, said: Callable[[str], None], script: str, *args: str
) -> None:
    """Run a bash script in the activated prefix, its lines as progress; QuickstartError if it
    fails."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script, what, *args],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    for line in done.stdout.splitlines():
        said(line)
    if done.returncode:
        raise QuickstartError(f"the {what} failed with exit code {done.returncode}, see above")


def make_models(
    environment: Mapping[str, str], state: State, said: Callable[[str], None]
) -> list[Path]:
    """The tiny models, written anew each time: they cost a second, and are never stale."""
    made = []
    for name in MODELS:
        folder = state.models / name
        script = 'rm -rf -- "$2"; python -m vllm_ascend.batch_invariant make-model "$1" "$2"'
        run_in(environment, "making of a tiny model", said, script, name, str(folder))
        made.append(folder)
    return made


def run_check(
    environment: Mapping[str, str], models: Sequence[Path], more: Sequence[str], result: Path
) -> tuple[int, dict[str, Any]]:
    """`check` on the models: its exit code and what it wrote."""
    result.unlink(missing_ok=True)
    command = ["python", "-m", "vllm_ascend.batch_invariant", "check", "--json", str(result)]
    for model in models:
        command += ["--model", str(model)]
    command += more
    done = subprocess.run(command, env=dict(environment), check=False)
    try:
        found = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    return done.returncode, found


def summary(packages: Sequence[Installed], seconds: Mapping[str, float]) -> str:
    """The closing table: our packages and how long each step took."""
    lines = ["", f"{'package':<30}{'version':<12}build"]
    ours = set(recipes.STAGES) | {"python", "pytorch"}
    lines += [f"{p.name:<30}{p.version:<12}{p.build}" for p in packages if p.name in ours]
    lines += ["", f"{'step':<30}{'seconds':>8}"]
    lines += [f"{name:<30}{value:>8.1f}" for name, value in seconds.items()]
    return "\n".join(lines)


def document(
    verdict: Mapping[str, Any], seconds: float, packages: Sequence[Installed]
) -> dict[str, Any]:
    """What --json writes."""
    return {
        "comparisons": verdict.get("comparisons", 0),
        "identical": verdict.get("identical", 0),
        "control_differs": verdict.get("control_differs", False),
        "seconds": round(seconds, 1),
        "packages": [asdict(package) for package in packages],
    }


def run(options: Options) -> int:
    """Everything; returns the exit code."""
    progress = Progress(options.started)
    timing = Timing(progress)
    state = State(Path(options.state))
    target = Path(options.prefix)
    environment = dict(os.environ)
    # A prefix is what it holds: not what the user's home or another environment adds. And it keeps
    # its bytecode, without which each start of vLLM compiles half a million lines.
    for name in (
        *("PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX", "VIRTUAL_ENV"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
    ):
        environment.pop(name, None)
    tools = str(state.tools / "bin")
    path = [folder for folder in environment["PATH"].split(os.pathsep) if folder != tools]
    environment |= {"PYTHONNOUSERSITE": "1", "PATH": os.pathsep.join(path)}
    with contextlib.ExitStack() as held:
        waiting = "waiting for another run that uses "
        held.enter_context(
            exclusive(state.lock, lambda: progress("start", f"{waiting}{state.root}"))
        )
        check_replaceable(target)  # again: others may have been faster
        choice = channel_choice.choose(options.channel)
        progress("channel", f"third-party packages come from {choice}")
        with timing.step("channel"):
            if choice == channel_choice.CONDA_FORGE:
                only_vllm_wheel(state, progress)
                third_party = choice
            else:
                check_machine(platform.system(), platform.machine())
                made, _ = make_standin(state, os.environ, progress)
                third_party = state.standin.as_uri()
        with timing.step("recipes"):
            built = build_recipes(state, third_party, os.environ, progress)
        with timing.step("prefix"):
            specs = [PACKAGE, f"ascend-soc * {SOC}"]
            records = prefix.solve_for([state.stages.as_uri(), third_party], specs)
            held.enter_context(
                exclusive(
                    target.with_name(f".{target.name}.lock"),
                    lambda: progress("prefix", f"{waiting}{target}"),
                )
            )
            if choice == "standin":
                prefix.prune(state.packages, {Path(item.file).stem for item in (*made, *built)})
            changed = prefix.install_into(records, specs, target, state.packages)
            verb = "installed into" if changed else "unchanged in"
            progress("prefix", f"{len(records)} packages {verb} {target}")
        packages = prefix.described(records)
        inside = prefix.activated(target, environment)
        with timing.step("packages' tests"):
            test_packages(built, state, target, inside, progress)
        with timing.step("quick check"):
            progress("quick", "the quick check of README.md")
            run_in(inside, "quick check", lambda text: progress("quick", text), QUICK_CHECK)
        with timing.step("models"):
            models = make_models(inside, state, lambda text: progress("models", text))
        progress("check", "every prompt alone and in batches, bit for bit")
        with timing.step("check"):
            code, verdict = run_check(inside, models, options.check, state.root / "check.json")
        timing.seconds["all"] = progress.elapsed
        result = document(verdict, progress.elapsed, packages)
        if options.json:
            write_json(Path(options.json), result)
    print(summary(packages, timing.seconds))
    word = CHECK_WORDS.get(code, f"check ended with {code}")
    print(
        f"quickstart: {word}: {result['identical']} of {result['comparisons']} comparisons "
        f"identical, control differs: {'yes' if result['control_differs'] else 'no'}, "
        f"{result['seconds']:.0f} s; activate with: conda activate {target} "
        f"(without conda: export PATH={target}/bin:$PATH)"
    )
    return code if code in CHECK_WORDS else ERROR


def main(arguments: Sequence[str]) -> int:
    """Run with the first half's options; every expected failure is one line."""
    end_as_interrupted()
    try:
        return run(Options(**json.loads(arguments[0])))
    except (*EXPECTED, QuickstartError) as error:
        print(f"quickstart: {one_line(error)}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("quickstart: interrupted; run it again to continue", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
