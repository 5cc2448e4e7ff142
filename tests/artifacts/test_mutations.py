# SPDX-License-Identifier: Apache-2.0
"""What is not to the byte what was built is not installed: no part of it is written."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from provision import conda_index
from provision.prefix import install_into, solve_for
from provision.prefix_stamp import PrefixError
from provision.recipes import STAGES

from csrc.stages import lock
from tests.mutations import mutations

from .builds import conda_package, operators, plugin, run_package, third_party
from .circumstances import Circumstances

# All in one process: pip takes half a second to start.
PIP = """
import json, pathlib, sys
from pip._internal.cli.main import main
statuses = []
for folder in map(pathlib.Path, sys.argv[1:]):
    [lock] = folder.glob("*.txt")
    options = ["--quiet", "--no-deps", "--no-index", "--no-cache-dir", "--require-hashes"]
    options += ["--find-links", str(folder), "-r", str(lock), "--target", str(folder / "installed")]
    statuses.append(main(["install", "--disable-pip-version-check", *options]))
print(json.dumps(statuses))
"""


def only_the_whole_wheel_is_installed(wheel: Path, other: Path, place: Path, count: int) -> None:
    """With the requirement that the script puts beside a wheel; the whole wheel as a control."""
    line = lock(wheel).read_text()
    files = [("whole", wheel.read_bytes())]
    files += mutations(wheel.read_bytes(), other.read_bytes(), count, seed=4)
    folders = []
    for number, (_, data) in enumerate(files):
        folder = place / str(number)
        folder.mkdir(parents=True)
        (folder / wheel.name).write_bytes(data)
        (folder / f"{wheel.name.split('-')[0]}.txt").write_text(line)
        folders.append(folder)
    command = [sys.executable, "-c", PIP, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    accepted = [
        name
        for (name, _), status in zip(files, json.loads(done.stdout), strict=True)
        if status == 0
    ]
    assert accepted == ["whole"]
    assert [folder.name for folder in folders if (folder / "installed").exists()] == ["0"]


def small_wheel(folder: Path, version: str) -> Path:
    folder.mkdir()
    path = folder / f"demo-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo/__init__.py", f"VERSION = {version!r}\n" + "# text\n" * 3000)
        info = f"demo-{version}.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_no_mutation_of_a_wheel_is_installed(tmp_path: Path) -> None:
    wheel, other = (small_wheel(tmp_path / version, version) for version in ("1.0", "2.0"))
    only_the_whole_wheel_is_installed(wheel, other, tmp_path / "mutations", 24)


@pytest.mark.slow
@pytest.mark.parametrize("build", [operators, plugin], ids=lambda made: made.__name__)
def test_no_mutation_of_a_stage_s_wheel_is_installed(
    own: Circumstances, tmp_path: Path, build: Callable[[Circumstances], Path]
) -> None:
    other = small_wheel(tmp_path / "other", "1.0")
    only_the_whole_wheel_is_installed(build(own), other, tmp_path / "mutations", 64)


@pytest.mark.slow
def test_no_mutation_of_the_run_package_is_installed(own: Circumstances, tmp_path: Path) -> None:
    """Of stage 1 itself; tests/run_package takes thousands of a small one."""
    package = run_package(own)
    target, damaged = tmp_path / "opp", tmp_path / package.name
    command = ["sh", str(damaged), f"--install-path={target}"]
    data = package.read_bytes()
    for name, changed in mutations(data, Path(sys.executable).read_bytes(), 240, seed=5):
        damaged.write_bytes(changed)
        done = subprocess.run(command, capture_output=True, cwd=tmp_path)
        assert done.returncode != 0 and not target.exists(), f"accepted: {name}"
    damaged.write_bytes(data)
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_no_mutation_of_a_stage_s_package_is_installed(
    own: Circumstances, tmp_path: Path, name: str
) -> None:
    archive = conda_package(own, name)
    channel = archive.parents[1]
    good = archive.read_bytes()
    # A noarch package is installed for a Python.
    records = [
        record
        for record in solve_for([channel.as_uri(), third_party().standin.as_uri()], [name])
        if record.name.normalized in (name, "python")
    ]
    other = conda_package(own, "ascend-soc" if name != "ascend-soc" else "vllm")
    prefix, cache = tmp_path / "prefix", tmp_path / "cache"
    try:
        for number, data in mutations(good, other.read_bytes(), 16, seed=6):
            archive.write_bytes(data)
            with pytest.raises(PrefixError, match="is damaged"):
                install_into(records, [name], prefix, cache)
                pytest.fail(f"accepted: {number}")
            assert not prefix.exists() and not cache.exists()
    finally:
        archive.write_bytes(good)
        conda_index.write(channel)
    assert install_into(records, [name], prefix, cache)
