# SPDX-License-Identifier: Apache-2.0
"""Every name a person types finds its row of the SoC table, and no other name does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from vllm_ascend import soc

ROOT = Path(__file__).resolve().parents[2]
NAMES = [row.name for row in soc.rows()]


def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **extra}
    command = [sys.executable, "-P", "-m", "vllm_ascend.soc", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, cwd="/")


def test_rows_are_those_of_the_data_file() -> None:
    data = tomllib.loads((ROOT / "soc.toml").read_text(encoding="utf-8"))
    assert list(data["soc"]) == NAMES
    for row in soc.rows():
        fields = data["soc"][row.name]
        assert (row.label, row.npu_arch) == (fields["label"], fields["npu_arch"])
        assert list(row.chips) == fields["chips"]


@pytest.mark.parametrize("row", soc.rows(), ids=NAMES)
def test_each_spelling_of_a_row_finds_it_in_any_case(row: soc.Soc) -> None:
    spellings = [row.name, row.label, *row.targets, *row.aliases, *row.prefixes]
    spellings += [chip.replace("*", "9579") for chip in row.chips]
    for spelling in spellings:
        for variant in (spelling, spelling.lower(), f" {spelling}\n"):
            assert soc.resolve(variant) is row, variant


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("910b", "ascend910b"),
        ("ascend910b1", "ascend910b"),
        ("Ascend910B4-1", "ascend910b"),
        ("910B3", "ascend910b"),  # A2, although a 3 is in its name
        ("910c", "ascend910_93"),
        ("a3", "ascend910_93"),
        ("ascend910_9391", "ascend910_93"),
        ("Ascend910_9392", "ascend910_93"),
        ("ascend950pr_9579", "ascend950"),
        ("ascend950dt_9582", "ascend950"),
        ("cpu", "cpu"),
    ],
)
def test_spellings_that_upstream_users_set(spelling: str, name: str) -> None:
    assert soc.resolve(spelling).name == name


@pytest.mark.parametrize(
    "chip", ["910A", "910ProB", "ascend910premiuma", "310P3", "Ascend310P3", "310b4"]
)
def test_an_unsupported_chip_is_refused_by_its_name(chip: str) -> None:
    with pytest.raises(soc.UnsupportedSocError, match=f"'{chip}' is not supported") as caught:
        soc.resolve(chip)
    assert "\n" not in str(caught.value)


def test_first_generation_910b_is_refused_as_its_chip_is_written() -> None:
    for chip in ("910B", "Ascend910B"):
        with pytest.raises(soc.UnsupportedSocError, match="for Atlas A2 write ascend910b"):
            soc.resolve(chip)
    assert soc.resolve("ascend910b").name == "ascend910b"


@pytest.mark.parametrize("name", ["", "910", "ascend910", "ascend", "910b9", "h100", "910_9392"])
def test_an_unknown_name_is_an_error_that_lists_the_accepted_ones(name: str) -> None:
    with pytest.raises(soc.UnknownSocError) as caught:
        soc.resolve(name)
    for row in soc.rows():
        assert row.name in str(caught.value)


def test_two_rows_may_not_claim_one_spelling() -> None:
    text = (ROOT / "soc.toml").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="belongs to"):
        soc.parse(text.replace('aliases = ["910c", "a3"]', 'aliases = ["910b"]'))
    with pytest.raises(ValueError, match="schema"):
        soc.parse(text.replace("schema = 1", "schema = 2"))
    with pytest.raises(ValueError, match="unknown fields: colour"):
        soc.parse(text.replace('label = "A3"', 'label = "A3"\ncolour = "red"'))
    with pytest.raises(ValueError, match="npu_arch: expected int"):
        soc.parse(text.replace("npu_arch = 3510", 'npu_arch = "3510"'))


def test_command_prints_a_field_or_the_row() -> None:
    assert run("resolve", "910c").stdout == "ascend910_93\n"
    assert run("resolve", "910c", "--field", "label").stdout == "A3\n"
    assert run("resolve", "950", "--field", "targets").stdout == "950 ascend950\n"
    assert json.loads(run("resolve", "950", "--json").stdout)["npu_arch"] == 3510
    assert [row["name"] for row in json.loads(run("list", "--json").stdout)] == NAMES
    assert [line.split()[0] for line in run("list").stdout.splitlines()] == NAMES


def test_command_fails_with_one_line() -> None:
    for name in ("h100", "310P3"):
        failed = run("resolve", name)
        assert failed.returncode == 1 and failed.stdout == ""
        assert failed.stderr.count("\n") == 1 and repr(name) in failed.stderr
    asked = run("resolve", ASCEND_HOME_PATH="/opt/cann")
    assert asked.returncode == 1 and "name the SoC" in asked.stderr


def test_wheel_carries_the_table(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("setup.py", "pyproject.toml", "soc.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "vllm_ascend", tree / "vllm_ascend")
    before = sorted(path.name for path in tree.iterdir())
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    done = subprocess.run(
        [*build, "--no-index", "--wheel-dir", tmp_path, tree], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tree.iterdir()) == before, "wrote into the source tree"
    (wheel,) = tmp_path.glob("vllm_ascend-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        assert (
            "vllm_ascend/soc.toml"
            in archive.read(
                next(name for name in archive.namelist() if name.endswith("/RECORD"))
            ).decode()
        )
    assert run("list", PYTHONPATH=str(tmp_path / "site")).stdout == run("list").stdout
    (tmp_path / "site/vllm_ascend/soc.toml").unlink()
    missing = run("list", PYTHONPATH=str(tmp_path / "site"))
    assert missing.returncode == 1 and "soc.toml is missing" in missing.stderr


def test_neither_torch_nor_vllm_is_imported() -> None:
    program = (
        "import sys, vllm_ascend.soc; vllm_ascend.soc.rows()\n"
        "print(sorted({'torch', 'vllm', 'numpy'} & set(sys.modules)))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], env=environ, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr
