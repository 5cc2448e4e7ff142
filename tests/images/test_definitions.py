# SPDX-License-Identifier: Apache-2.0
"""What recipes/images holds is what its template and soc.toml make, and is clean."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from container_images.apptainer import definition, instructions
from container_images.command import definitions, main
from container_images.definitions import DefinitionError, Image, images

from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "recipes/images"
CONTAINERFILES = sorted(IMAGES.glob("*/Containerfile"))
SWITCHES = ("VLLM_BATCH_INVARIANT", "COMPILE_CUSTOM_KERNELS")


def script(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts/images", *arguments],
        env=os.environ | {"PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
    )


def test_there_is_an_image_for_each_npu_on_both_distributions_and_one_for_cpu() -> None:
    npus = [row.name for row in soc.rows() if row.is_npu]
    wanted = {f"{name}-{distribution}" for name in npus for distribution in ("ubuntu", "openeuler")}
    assert {path.parent.name for path in CONTAINERFILES} == wanted | {"cpu-debian"}
    assert {path.parent.name for path in IMAGES.glob("*/apptainer.def")} == wanted | {"cpu-debian"}


def test_what_is_committed_is_what_the_template_makes() -> None:
    done = script("--check")
    assert done.returncode == 0, "type ./scripts/images"
    said = f"images: {len(definitions())} definitions are what the template makes\n"
    assert (done.stdout, done.stderr) == (said, "")


def test_a_definition_that_was_edited_lost_or_left_behind_is_named(tmp_path: Path) -> None:
    assert script("--output", tmp_path).returncode == 0
    assert json.loads(script("--check", "--json", "--output", tmp_path).stdout) == [
        str(tmp_path / name) for name in definitions()
    ]
    edited = tmp_path / "cpu-debian/Containerfile"
    edited.write_text(edited.read_text().replace("10001", "0"))
    (tmp_path / "ascend950-ubuntu/apptainer.def").unlink()
    (tmp_path / "ascend310-ubuntu").mkdir()
    (tmp_path / "ascend310-ubuntu/Containerfile").write_text("FROM scratch\n")
    done = script("--check", "--output", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "images: not what the template makes: ascend310-ubuntu/Containerfile,"
        " ascend950-ubuntu/apptainer.def, cpu-debian/Containerfile;"
        f" type ./scripts/images --output {tmp_path}\n"
    )
    assert not (tmp_path / "ascend950-ubuntu/apptainer.def").exists()


@pytest.mark.parametrize("check", [(), ("--check",)])
@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("file", "--output 'file': expected a folder, found a file; name another"),
        ("", "--output '': expected a folder, found no name; name another"),
        ("none/x", "--output none/x: there is no folder none to make it in; make that or name"),
        ("file/x", "--output file/x: there is no folder file to make it in; make that or name"),
    ],
)
def test_a_folder_that_cannot_be_written_is_one_line_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: tuple[str, ...], output: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    done = script(*check, "--output", output)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"images: {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    assert script("--output", tmp_path / "new").returncode == 0
    assert all((tmp_path / "new" / name).is_file() for name in definitions())


def test_a_template_that_asks_for_what_nobody_gives_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot fill in 'colour'"):
        Image("one", {}).containerfile("FROM %{colour}\n")


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "Example: ./scripts/images --check" in capsys.readouterr().out


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    tool = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    assert tool, "hadolint is not installed; ./scripts/test installs it"
    command = [tool, "--no-color", "--config", str(IMAGES / "hadolint.yaml")]
    done = subprocess.run([*command, *CONTAINERFILES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # And it would.
    (tmp_path / "Containerfile").write_text("FROM debian:latest\nRUN cd /src\n")
    done = subprocess.run([*command, tmp_path / "Containerfile"], capture_output=True, text=True)
    assert done.returncode == 1 and "DL3007" in done.stdout and "DL3003" in done.stdout


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.parent.name)
def test_an_image_leaves_no_switch_on_and_holds_no_compiler(path: Path) -> None:
    text = path.read_text()
    assert not re.search("|".join(SWITCHES), text)
    build, final = text.split("\nFROM ${BASE}\n")
    assert re.search(r"install .*(g\+\+|gcc-c\+\+)", build)
    assert not re.search(r"g\+\+|gcc|cmake|-devel|-dev\b", final)
    assert [argument for keyword, argument in instructions(final) if keyword == "USER"] == ["10001"]
    labels = re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', final)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (
        dict(labels).items()
        >= {
            "version": version,
            "revision": "${REVISION}",
            "licenses": "Apache-2.0",
        }.items()
    )
    assert "source" not in dict(labels)


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.parent.name)
def test_apptainer_does_the_same_steps(path: Path) -> None:
    made = path.with_name("apptainer.def").read_text()
    assert made.count("From: {{ BASE }}") == 2 and "${BASE}" not in made
    flat = re.sub(r"\s+", " ", made.replace("{{ BASE }}", "${BASE}"))
    for keyword, argument in instructions(path.read_text()):
        if keyword == "RUN" and not argument.startswith("useradd"):
            command = re.sub(r"^--mount=\S+ ", "", argument)
            assert re.sub(r"\s+", " ", command) in flat
    entrypoint = json.loads(re.findall(r"^ENTRYPOINT (.*)$", path.read_text(), re.MULTILINE)[0])
    assert f'exec {" ".join(entrypoint)} "$@"' in made
    assert made.count("set -eu\n") == 2


def test_an_instruction_without_a_counterpart_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no counterpart in Apptainer for HEALTHCHECK NONE"):
        definition("ARG BASE\nFROM ${BASE}\nHEALTHCHECK NONE\n")


def test_the_bases_are_those_of_the_soc_table() -> None:
    for image in images():
        row = soc.resolve(image.values["soc"])
        if row.is_npu:
            assert f"-{row.label.lower()}-" in image.values["base"]
            assert f"CANN {row.min_cann} or newer" in image.values["base"]


def test_a_base_without_a_digest_is_refused() -> None:
    (command, *_) = (
        argument
        for keyword, argument in instructions(CONTAINERFILES[0].read_text())
        if keyword == "RUN"
    )

    def run(base: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command], env={"BASE": base}, capture_output=True, text=True
        )

    assert run(f"somewhere/debian@sha256:{'0' * 64}").returncode == 0
    for base in ("debian:bookworm", ""):
        done = run(base)
        assert done.returncode == 1
        assert f"BASE is '{base}': name the image by its digest" in done.stderr


def install(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", IMAGES / "install.sh", *arguments],
        env=os.environ | {"PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected closure or stages, found ''"),
        (["everything", "cpu"], "expected closure or stages, found 'everything'"),
        (["stages"], "expected a SoC after stages"),
    ],
)
def test_wrong_steps_are_refused(arguments: list[str], said: str) -> None:
    done = install(*arguments)
    assert (done.returncode, done.stderr) == (1, f"install.sh: {said}\n")


def test_a_base_whose_cann_is_too_old_is_refused_before_anything_is_installed(
    tmp_path: Path,
) -> None:
    home = make_stub_cann(tmp_path, "8.5.0", libraries=False)
    prefix = tmp_path / "prefix"
    done = install("closure", "ascend950", ASCEND_HOME_PATH=str(home), IMAGE_PREFIX=str(prefix))
    assert done.returncode == 1
    assert "9.1.0" in done.stderr and "BASE does not do for ascend950" in done.stderr
    assert not prefix.exists()


@pytest.mark.parametrize(
    ("machine", "refused"), [("riscv64", True), ("86", True), ("aarch64", False)]
)
def test_a_machine_without_locks_is_refused_before_anything_is_installed(
    tmp_path: Path, machine: str, refused: bool
) -> None:
    uname = tmp_path / "uname"
    uname.write_text(f"#!/bin/sh\necho {machine}\n")
    uname.chmod(0o755)
    # A folder that is none ends an installation that was not refused.
    (tmp_path / "prefix").write_text("")
    done = install(
        "closure",
        "cpu",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        IMAGE_PREFIX=str(tmp_path / "prefix"),
    )
    assert done.returncode == 1
    said = f"install.sh: locks/ have nothing for {machine}\n"
    assert (done.stderr == said) == refused
    assert ("prefix" in done.stderr) != refused


def test_with_cann_brings_what_set_env_sets(tmp_path: Path) -> None:
    for layout in ("new", "old"):
        home = make_stub_cann(tmp_path / layout, layout=layout, libraries=False)
        environ = {
            "PATH": os.environ["PATH"],
            "ASCEND_HOME_PATH": str(home),
            "PYTHONPATH": str(ROOT),
        }
        text = (IMAGES / "with-cann").read_text()
        command = tmp_path / "with-cann"
        command.write_text(text.replace("/opt/vllm-ascend/bin/python", sys.executable))
        done = subprocess.run(
            ["sh", command, "sh", "-c", 'echo "$ASCEND_OPP_PATH" "$1"', "-", "a b"],
            env=environ,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (0, f"{home}/opp a b\n"), done.stderr
        (cann,) = (path for path in (home, home.parent) if (path / "set_env.sh").exists())
        (cann / "set_env.sh").unlink()
        done = subprocess.run(
            ["sh", command, "true"],
            env=environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and "no set_env.sh in" in done.stderr
