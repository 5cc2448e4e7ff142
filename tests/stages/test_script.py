# SPDX-License-Identifier: Apache-2.0
"""`bash csrc/build_batch_invariant_ops.sh cpu`, from the source to a result."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACE = "share/ascend/opp/vendors/batch_invariant"

# The quick check that users of the operators know.
QUICK_CHECK = """
import batch_invariant_ops
import torch
op = torch.ops.batch_invariant_ops.npu_matmul_batch_invariant
print(op)
assert 'npu_matmul_batch_invariant' in str(op)
"""


def environment(**extra: str) -> dict[str, str]:
    unwanted = {"ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH", "PYTHONPATH"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**kept, **extra}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources, without what a build left, in a directory with an awkward name."""
    copy = tmp_path / "ein Baum 树"
    leave = shutil.ignore_patterns("build", "__pycache__", "*.egg-info", "*.so", ".*")
    shutil.copytree(ROOT / "csrc", copy / "csrc", ignore=leave)
    shutil.copytree(ROOT / "tools", copy / "tools", ignore=leave)
    shutil.copytree(ROOT / "vllm_ascend/soc", copy / "vllm_ascend/soc", ignore=leave)
    for name in ("vllm_ascend/__init__.py", "soc.toml", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copy(ROOT / "LICENSE", copy)
    return copy


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python of its own that has what this one has, torch and setuptools among it."""
    place = tmp_path / "a python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    paths = [sysconfig.get_path("purelib"), *(path for path in sys.path if "site-packages" in path)]
    (site / "borrowed.pth").write_text("\n".join(dict.fromkeys(paths)) + "\n")
    return place / "bin/python"


def digests(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_both_stages_from_source_to_a_result(tree: Path, python: Path, tmp_path: Path) -> None:
    """From another directory, umask 077, without a network where that can be arranged."""
    temporary, output = tmp_path / "tmp dir", tmp_path / "out"
    temporary.mkdir()
    before = digests(tree)
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        alone = []
    script = ["bash", str(tree / "csrc/build_batch_invariant_ops.sh"), "cpu"]
    env = environment(PYTHON=str(python), TMPDIR=str(temporary))
    done = subprocess.run(
        [*alone, *script, "--output", str(output)],
        cwd="/",
        env=env,
        umask=0o077,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "build_batch_invariant_ops: ok"
    assert digests(tree) == before, "the source tree was written to"
    assert list(temporary.iterdir()) == [], "temporary files stay"

    prefix = python.parents[1]
    info = (prefix / PLACE / "version.info").read_text()
    version = (ROOT / "csrc/VERSION").read_text().strip()
    assert f"version={version}\n" in info and "soc=cpu\n" in info
    (site,) = prefix.glob("lib/python*/site-packages")
    for folder in (prefix / PLACE, site / "batch_invariant_ops"):
        for path in (folder, *folder.resolve().rglob("*")):
            assert path.stat().st_mode & 0o044 == 0o044, f"others cannot read {path}"

    checked = subprocess.run(
        [python, "-c", QUICK_CHECK], cwd="/", env=environment(), capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr

    # The wheel knows the path to stage 1 from nowhere: taken away, it is missed by name.
    undo = [*script[:-1], "--uninstall"]
    removed = subprocess.run([*undo, "--stage", "1"], env=env, capture_output=True, text=True)
    assert removed.returncode == 0, removed.stderr
    assert not (prefix / "share").exists()
    program = "import torch, batch_invariant_ops as b; x = torch.eye(2)\n"
    program += "torch.ops.batch_invariant_ops.npu_mm_batch_invariant(x, x)"
    missed = subprocess.run(
        [python, "-c", program], cwd="/", env=environment(), capture_output=True, text=True
    )
    assert missed.returncode != 0
    assert str(prefix / "share/ascend/opp") in missed.stderr

    removed = subprocess.run(undo, env=env, capture_output=True, text=True)
    assert removed.returncode == 0, removed.stderr
    assert not list(site.glob("batch_invariant_ops*"))

    (wheel,) = output.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert f"sha256:{digest}" in (output / "batch_invariant_ops.txt").read_text()

    (package,) = output.glob("*.run")
    again = tmp_path / "again"
    subprocess.run(
        [*script, "--run-package-only", "-o", again, "-j", "1", "--build-dir", tmp_path / "b"],
        cwd=tmp_path,
        env=env,
        check=True,
        capture_output=True,
    )
    assert (again / package.name).read_bytes() == package.read_bytes()


def test_terminated_it_leaves_no_file_and_no_compiler(tree: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [
            *("bash", str(tree / "csrc/build_batch_invariant_ops.sh"), "cpu", "--stage=1"),
            f"--install-path={tmp_path}/opp",
        ],
        env=environment(PYTHON=sys.executable, TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    for line in process.stdout:
        if "stage 1 compile ..." in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    process.stdout.close()
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "opp").exists()
    commands = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(temporary).encode() in read(path) for path in commands)


def read(path: Path) -> bytes:
    """A process's command line, or nothing if it has just ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
