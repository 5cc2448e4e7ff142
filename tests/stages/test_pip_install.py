# SPDX-License-Identifier: Apache-2.0
"""`COMPILE_CUSTOM_KERNELS=1 VLLM_BATCH_INVARIANT=1 pip install .`: one wheel holds all stages."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from csrc import stages, wheel_with_operators

ROOT = Path(__file__).resolve().parents[2]
OPP = "share/ascend/opp/vendors/batch_invariant"
SWITCHES = {"COMPILE_CUSTOM_KERNELS": "1", "VLLM_BATCH_INVARIANT": "1"}
# Not linked into an environment that a test installs into. What starts coverage is: without it the
# lines that such an environment's Python runs would not count.
OURS = re.compile(
    r"(batch_invariant_ops|vllm_ascend|__editable__.*)(\W.*)?|__pycache__|(?!a1_coverage).*\.pth"
)

# The quick check that users of the operators know; then a call, which takes stage 1.
QUICK_CHECK = """
import batch_invariant_ops
import torch
op = torch.ops.batch_invariant_ops.npu_matmul_batch_invariant
print(op)
assert 'npu_matmul_batch_invariant' in str(op)
from vllm_ascend.batch_invariant import operators, switch
operators.require()
assert not switch.enabled()
print(batch_invariant_ops.library().path)
"""


def environment(**extra: str) -> dict[str, str]:
    """The caller's, with nothing that says where operators are or which to build."""
    unwanted = {"ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH", "PYTHONPATH", "SOC_VERSION", *SWITCHES}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**kept, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **extra}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment that has what this one has, without the project's own."""
    place = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.fullmatch(path.name):
            (site / path.name).symlink_to(path)
    (place / "share").mkdir()  # where vLLM is installed, some package has made it
    return place / "bin/python"


def pip(python: Path, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs pip in the environment; both streams as a terminal shows them."""
    return subprocess.run(
        [python, "-m", "pip", *arguments],
        env=environment(PYTHONDONTWRITEBYTECODE="1", **env),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def install(python: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return pip(python, "install", *options, ".", "--no-build-isolation", **{**SWITCHES, **env})


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that pip shows of a failed build; what follows is about pip itself."""
    assert done.returncode != 0, done.stdout
    # Within it there may be the output of the pip that builds stage 2.
    before, end, _ = done.stdout.rpartition("[end of output]")
    assert end, done.stdout
    line = before.rstrip().splitlines()[-1].strip()
    assert line.startswith("vllm-ascend: "), done.stdout
    return line


def listing(folder: Path) -> set[str]:
    """Everything below a folder, but bytecode, which whoever imports a module leaves."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def fake_compiler(folder: Path, text: str) -> str:
    """A value for CXX: a script."""
    path = folder / "a compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return shlex.quote(str(path))


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


# ---- what is refused before anything is built ---------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"SOC_VERSION": "ascend910b1"}, "AscendC sources of the operators for ascend910b "),
        ({"VLLM_BATCH_INVARIANT": "yes"}, "VLLM_BATCH_INVARIANT='yes': expected 0 or 1"),
        ({"CXX": "no-such-c++"}, "CXX is 'no-such-c++'"),
    ],
)
def test_pip_ends_with_the_line_that_says_what_is_wrong(
    python: Path, variables: dict[str, str], words: str
) -> None:
    before = listing(python.parents[1])
    assert words in said(install(python, **variables))
    assert listing(python.parents[1]) == before


def test_a_setuptools_that_is_too_old_is_named(python: Path, tmp_path: Path) -> None:
    """The one that a new environment of Python 3.11 begins with has no bdist_wheel."""
    old = tmp_path / "old" / "setuptools"
    (old / "command").mkdir(parents=True)
    (old / "__init__.py").write_text("__version__ = '65.5.1'\ndef setup(): pass\n")
    (old / "command/__init__.py").touch()
    for command in ("build_py", "editable_wheel", "sdist"):
        (old / f"command/{command}.py").write_text(f"class {command}: pass\n")
    done = subprocess.run(
        [python, "setup.py", "--version"],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(old.parent)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "setuptools 65.5.1 is too old" in done.stderr and done.stderr.count("\n") == 1


def test_a_copy_without_the_operators_sources_says_so(tmp_path: Path) -> None:
    """A source archive of the plugin is such a one."""
    for name in ("setup.py", "pyproject.toml", "soc.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=tmp_path,
        env=environment(**SWITCHES),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"{tmp_path} has no csrc: take the whole source tree, or unset" in done.stderr


def test_operators_of_the_run_package_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter(()))
    place = tmp_path / OPP
    wheel_with_operators.check_owner(place)
    place.parent.mkdir(parents=True)
    place.symlink_to(".batch_invariant.0")
    with pytest.raises(stages.StageError, match=re.escape(f"installed already ({place}): remove")):
        wheel_with_operators.check_owner(place)
    place.unlink()
    place.mkdir()  # pip's own, which it replaces
    wheel_with_operators.check_owner(place)


def test_operators_that_are_a_distribution_of_their_own_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "batch_invariant_ops-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: batch_invariant_ops\nVersion: 0.1.0\n")
    found = importlib.metadata.PathDistribution(information)
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: iter([found]))
    (information / "INSTALLER").write_text("pip\n")
    with pytest.raises(stages.StageError, match=r"batch_invariant_ops 0\.1\.0, by pip\): remove"):
        wheel_with_operators.check_owner(tmp_path / OPP)
    (information / "INSTALLER").write_text("vllm-ascend\n")
    wheel_with_operators.check_owner(tmp_path / OPP)


@pytest.mark.parametrize("jobs", ["0", "two", "-1"])
def test_a_number_of_jobs_that_is_none_is_refused(jobs: str) -> None:
    with pytest.raises(stages.StageError, match=f"MAX_JOBS={jobs}: expected a number from 1"):
        wheel_with_operators.plan({"MAX_JOBS": jobs})


@pytest.mark.parametrize("off", [{}, {**SWITCHES, "COMPILE_CUSTOM_KERNELS": "0"}])
def test_without_the_switch_the_plugin_alone_is_built(tmp_path: Path, off: dict[str, str]) -> None:
    done = pip(
        Path(sys.executable),
        *("wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, "."),
        **off,
    )
    assert done.returncode == 0, done.stdout
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        assert b"\nRequires-Dist: batch_invariant_ops\n" in archive.read(metadata)
    assert not any(name.startswith("batch_invariant_ops") for name in names)


# ---- the wheel ----------------------------------------------------------------------------------


def joined(folder: Path, operators_require: str = "torch==2.13.*") -> Path:
    """A wheel of a plugin with small stand-ins for the operators in it."""
    folder.mkdir()
    wheel = folder / "vllm_ascend-0.32.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_ascend/__init__.py", "")
        information = "vllm_ascend-0.32.0.dist-info"
        archive.writestr(
            f"{information}/METADATA",
            "Metadata-Version: 2.1\nName: vllm-ascend\nVersion: 0.32.0\n"
            "Requires-Dist: torch==2.13.*\n",
        )
        archive.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n",
        )
        archive.writestr(f"{information}/RECORD", "")
    metadata = f"Name: batch_invariant_ops\nVersion: 0.1.0\nRequires-Dist: {operators_require}\n"
    return wheel_with_operators._joined(
        wheel,
        stage1={"op_api/lib/libcust_opapi.so": b"library", "version.info": b"soc=cpu\n"},
        stage2={
            "batch_invariant_ops/__init__.py": b"",
            "batch_invariant_ops/lib/libbatch_invariant_ops.so": b"library",
            "batch_invariant_ops-0.1.0.dist-info/METADATA": metadata.encode(),
            "batch_invariant_ops-0.1.0.dist-info/RECORD": b"",
            "batch_invariant_ops-0.1.0.dist-info/WHEEL": b"",
        },
        tag="py3-none-linux_x86_64",
    )


def test_pip_installs_and_removes_the_operators_with_the_plugin(
    python: Path, tmp_path: Path
) -> None:
    wheel = joined(tmp_path / "wheels")
    assert wheel.name == "vllm_ascend-0.32.0-py3-none-linux_x86_64.whl"
    assert [path.name for path in wheel.parent.iterdir()] == [wheel.name]
    prefix = python.parents[1]
    (site,) = prefix.glob("lib/python*/site-packages")
    before = listing(prefix)
    done = pip(python, "install", "--no-deps", wheel)
    assert done.returncode == 0, done.stdout
    assert (prefix / OPP / "op_api/lib/libcust_opapi.so").read_bytes() == b"library"
    assert (site / "batch_invariant_ops/lib/libbatch_invariant_ops.so").read_bytes() == b"library"

    listed = pip(python, "list", "--format=freeze").stdout
    assert "vllm-ascend==0.32.0\n" in listed and "batch_invariant_ops==0.1.0\n" in listed
    # By themselves the operators are not removed: their owner is named.
    alone = pip(python, "uninstall", "-y", "batch_invariant_ops")
    assert alone.returncode != 0 and "installed by vllm-ascend" in alone.stdout
    both = pip(python, "uninstall", "-y", "vllm-ascend", "batch_invariant_ops")
    assert both.returncode == 0, both.stdout
    assert listing(prefix) == before


def test_the_same_parts_give_the_same_wheel(tmp_path: Path) -> None:
    first, second = joined(tmp_path / "first"), joined(tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()


def test_a_torch_that_changed_under_the_build_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(stages.StageError, match=r"built for torch==2\.14\.\*, and torch changed"):
        joined(tmp_path / "wheels", operators_require="torch==2.14.*")


# ---- from the source to a result ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-e",)], ids=["regular", "editable"])
def test_one_command_installs_every_stage_and_one_removes_it(
    python: Path, temporary: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    prefix = python.parents[1]
    before = listing(prefix)
    tree = listing(ROOT)
    # Without optimisation the compiler is done in half the time; the bits are the same.
    compiler = fake_compiler(tmp_path, 'exec c++ "$@" -O0')
    done = install(python, *options, TMPDIR=str(temporary), CXX=compiler)
    assert done.returncode == 0, done.stdout
    assert [path for path in temporary.iterdir() if "batch_invariant" in path.name] == []
    assert listing(ROOT) == tree, "the source tree was written to"

    checked = subprocess.run(
        [python, "-B", "-c", QUICK_CHECK],
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.splitlines()[-1].startswith(str(prefix / OPP))

    # The switch is for building: no file that was installed sets it, and none is run by a shell or
    # by Python's start.
    added = listing(prefix) - before
    assert not any("activate.d" in name for name in added)
    for name in added:
        path = prefix / name
        if path.suffix in {".pth", ".bash", ".sh"}:
            assert "VLLM_BATCH_INVARIANT" not in path.read_text(), path

    # The script sees whose operators these are.
    script = ROOT / "csrc/build_batch_invariant_ops.sh"
    refused = subprocess.run(
        ["bash", script, "cpu"], env=environment(PYTHON=str(python)), capture_output=True, text=True
    )
    assert refused.returncode == 1 and "are part of vllm-ascend" in refused.stderr

    removed = pip(python, "uninstall", "-y", "vllm-ascend")
    assert removed.returncode == 0, removed.stdout
    assert listing(prefix) == before


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2])
def test_a_stage_that_fails_fails_the_installation(
    python: Path, temporary: Path, tmp_path: Path, stage: int
) -> None:
    """Stage 2 is what sees torch's headers."""
    broken = "echo the compiler is broken >&2; exit 1"
    when = {1: "*/csrc/cpu/*", 2: "*torch/csrc/api*"}[stage]
    compiler = fake_compiler(tmp_path, f'case "$*" in {when}) {broken} ;; esac\nexec c++ "$@" -O0')
    before = listing(python.parents[1])
    line = said(install(python, TMPDIR=str(temporary), CXX=compiler))
    assert f"stage {stage} " in line and "failed" in line
    log = Path(line.rpartition("see ")[2])
    assert "the compiler is broken" in log.read_text()
    assert listing(python.parents[1]) == before
    assert [path for path in temporary.iterdir() if path.is_dir() and "batch" in path.name] == []
