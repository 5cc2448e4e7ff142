# SPDX-License-Identifier: Apache-2.0
"""What the recipes build: the same bytes each time, found again when nothing changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from provision import conda_index, interpreter, recipes, toolchain
from provision.conda_package import Metadata
from provision.package_tests import run as run_package_tests
from provision.prefix import activated, install_into, solve_for
from provision.progress import Progress
from provision.recipes import RecipeError, inputs_digest, variant_for
from provision.standin import Built, Planned, assemble, native_subdir, plan_machine
from provision.state import file_sha256

ROOT = Path(__file__).parents[2]
TREE_PARTS = ("recipes", "csrc", "soc.toml", "LICENSE", "tools", "vllm_ascend/soc")


def build(tree: Path, name: str, place: Path, needs: list[Built], third_party: Path) -> Built:
    stages = place / "stages"
    conda_index.write(stages)
    return recipes.build(
        tree,
        name,
        "cpu",
        stages,
        channels=[stages.as_uri(), third_party.as_uri()],
        identity=lambda names: "test",
        needs=needs,
        logs=place / "logs",
        environment={
            **os.environ,
            "RATTLER_CACHE_DIR": str(place / "cache"),
            "PYTHONPATH": str(ROOT / "tools"),
        },
        running=set(),
        progress=Progress(),
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what recipes are built from, to change."""
    copy = tmp_path / "tree"
    for part in TREE_PARTS:
        target = copy / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "build", "dist")
            shutil.copytree(ROOT / part, target, ignore=ignored, symlinks=True)
        else:
            shutil.copy(ROOT / part, target)
    return copy


@pytest.fixture
def empty_channel(tmp_path: Path) -> Path:
    folder = tmp_path / "third-party"
    assemble(folder, [], Progress())
    return folder


def test_the_mutex_builds_to_the_same_bytes_in_two_places(
    tmp_path: Path, empty_channel: Path
) -> None:
    first = build(ROOT, "ascend-soc", tmp_path / "one", [], empty_channel)
    second = build(ROOT, "ascend-soc", tmp_path / "another place", [], empty_channel)
    assert first == second
    path = tmp_path / "one" / "stages" / first.subdir / first.file
    assert file_sha256(path) == first.sha256
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_is_unchanged_is_reused_and_what_is_damaged_is_built_again(
    tmp_path: Path, empty_channel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = build(ROOT, "ascend-soc", tmp_path, [], empty_channel)
    assert "ascend-soc: built in" in capsys.readouterr().err
    assert build(ROOT, "ascend-soc", tmp_path, [], empty_channel) == first
    assert "ascend-soc: unchanged, reused" in capsys.readouterr().err
    path = tmp_path / "stages" / first.subdir / first.file
    path.write_bytes(path.read_bytes()[:-1])
    assert build(ROOT, "ascend-soc", tmp_path, [], empty_channel) == first
    assert "ascend-soc: built in" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", ["csrc/op_api/include/batch_invariant.h", "soc.toml", "recipes/conda/variants.yaml"]
)
def test_a_change_of_any_source_is_a_reason_to_build(tree: Path, change: str) -> None:
    name = "ascendc-batch-invariant-ops"

    def digest(needs: list[Built]) -> str:
        variant = variant_for(tree, name, "cpu", "linux-64")
        return inputs_digest(tree, name, variant, needs, "channel")

    soc = Built("ascend-soc", "1.0", "cpu", "noarch", "ascend-soc-1.0-cpu.conda", "a" * 64, 1)
    before = digest([soc])
    assert digest([soc]) == before
    assert digest([replace(soc, sha256="b" * 64)]) != before
    with (tree / change).open("a") as file:
        file.write("\n")
    assert digest([soc]) != before


def test_a_recipe_that_does_not_build_says_where_its_log_is(
    tree: Path, tmp_path: Path, empty_channel: Path
) -> None:
    # Nothing in the channel: no compiler, no CMake.
    with pytest.raises(RecipeError, match=r"did not build: .*; the whole log is .*\.log"):
        build(tree, "ascendc-batch-invariant-ops", tmp_path, [], empty_channel)
    assert not list((tmp_path / "stages").glob("*/*.conda"))


@pytest.mark.parametrize("how", ["asked to end", "killed"])
def test_nothing_of_a_build_goes_on_when_the_caller_is_gone(tmp_path: Path, how: str) -> None:
    """A caller with a child that has compilers in a group of their own, as ninja has."""
    child = tmp_path / "child.py"
    child.write_text(
        "import os, signal, subprocess, sys, time\n"
        "from provision.recipes import _die_with_parent\n"
        "_die_with_parent()\n"
        "compiler = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "def end(*_): compiler.kill(); os._exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{compiler.pid}}\\n')\n"
        "while True: time.sleep(0.1)\n"
    )
    caller = (
        "import signal, sys\n"
        "from provision.recipes import _run_group\n"
        "def end(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "import os\n"
        "_run_group([sys.executable, sys.argv[1]], dict(os.environ), set(), lambda: None)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", caller, str(child)], env=environment, stderr=subprocess.DEVNULL
    ) as process:
        pids = tmp_path / "pids"
        wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        process.send_signal(signal.SIGTERM if how == "asked to end" else signal.SIGKILL)
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_stage_1_builds_to_the_same_bytes_in_two_places_and_passes_its_tests(
    tmp_path: Path,
) -> None:
    patchelf = shutil.which("patchelf")
    ninja = shutil.which("ninja")
    assert patchelf and ninja, "./scripts/test installs both"
    environment = dict(os.environ)
    compilers = {name: toolchain.find_compiler(name, environment) for name in ("c", "cxx")}
    cmake = toolchain.find_cmake(environment)
    tool = toolchain.Tool(Path(ninja), "1.13")
    plans = [
        *plan_machine(interpreter.running(), compilers, cmake, patchelf),
        Planned(
            Metadata("ninja", tool.version, "standin_0", native_subdir()),
            lambda: toolchain.wrapper_entries("ninja", tool),
        ),
    ]
    machine = tmp_path / "machine"
    assemble(machine, plans, Progress())
    made = []
    for place in (tmp_path / "one", tmp_path / "another place"):
        soc = build(ROOT, "ascend-soc", place, [], machine)
        made.append(build(ROOT, "ascendc-batch-invariant-ops", place, [soc], machine))
    assert made[0] == made[1]
    stages = tmp_path / "one" / "stages"
    conda_index.write(stages)
    specs = ["ascendc-batch-invariant-ops", "python"]
    prefix = tmp_path / "prefix"
    records = solve_for([stages.as_uri(), machine.as_uri()], specs)
    install_into(records, specs, prefix, tmp_path / "cache")
    archive = stages / made[0].subdir / made[0].file
    assert run_package_tests(archive, prefix, activated(prefix, environment)) == 1
