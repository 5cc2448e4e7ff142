# SPDX-License-Identifier: Apache-2.0
"""--verify finds each kind of damage, and the installation looks first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from provision.bundle_verify import verify

from tests.bundle.test_archive import run
from tests.bundle.unpacked import edit, sum_again, unpack

PACKAGE = "channel/noarch/operators-1.0-h_0.conda"
INDEX = "channel/noarch/repodata.json"
SBOM = "sbom.cdx.json"
FILE = Path(PACKAGE).name


@pytest.fixture
def root(archive: Path, tmp_path: Path) -> Path:
    return unpack(archive, tmp_path / "unpacked")


def append(root: Path, name: str, data: bytes = b"x") -> None:
    with (root / name).open("ab") as file:
        file.write(data)


def link(root: Path) -> None:
    shutil.copy(root / "install", root.parent / "outside")
    (root / "install").unlink()
    (root / "install").symlink_to(root.parent / "outside")


# What is done to an unpacked bundle, and what is said then.
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a package is changed": (lambda root: append(root, PACKAGE), f"{PACKAGE}: expected sha256 "),
    "a package is missing": (lambda root: (root / PACKAGE).unlink(), f"{PACKAGE} is missing"),
    "a source is changed": (
        lambda root: append(root, "source/tools/run-provision"),
        "source/tools/run-provision: expected sha256 ",
    ),
    "a file is there more": (
        lambda root: (root / "channel/more").touch(),
        "channel/more is not in SHA256SUMS",
    ),
    "a file is a link": (link, "install: a link or device"),
    "a name is none to print": (
        lambda root: Path(os.fsdecode(os.fsencode(root) + b"/a\x1b[2J\n\xff")).touch(),
        "a\N{REPLACEMENT CHARACTER}[2J",
    ),
    "a folder is a link": (
        lambda root: (root / "else").symlink_to("/etc"),
        "else: a link; a bundle holds plain files",
    ),
    "the sums are missing": (lambda root: (root / "SHA256SUMS").unlink(), "SHA256SUMS is missing"),
    "a line is none": (
        lambda root: append(root, "SHA256SUMS", b"\xff\n"),
        "expected a sha256 and a path of its own, found",
    ),
    "a line is there twice": (
        lambda root: append(root, "SHA256SUMS", (root / "SHA256SUMS").read_bytes()[:500]),
        "expected a sha256 and a path of its own, found",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(root: Path, name: str) -> None:
    assert verify(root).faults == []
    change, expected = DAMAGE[name]
    change(root)
    faults = verify(root).faults
    assert any(expected in fault for fault in faults), faults
    done = run("--verify", root)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "".join(f"bundle: {fault}\n" for fault in faults)


def component(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [each for each in document["components"] if each["name"] == "operators"]
    return found


def edges(document: dict[str, Any], ref: str) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [each for each in document["dependencies"] if each["ref"] == ref]
    return found


# Of the bill of materials or the index, with sums that agree: what is said of it.
LIES: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "a component is left out": (
        SBOM,
        lambda d: d["components"].remove(component(d)),
        f"{PACKAGE} is not in {SBOM}",
    ),
    "a component is of another version": (
        SBOM,
        lambda d: component(d).update(version="2.0"),
        f"{PACKAGE}: the index has ('operators', '1.0', ",
    ),
    "a component has another purl": (
        SBOM,
        lambda d: component(d).update(purl="pkg:conda/operators@1.0"),
        f"{PACKAGE}: the index has ('operators', '1.0', ",
    ),
    "a component has another sha256": (
        SBOM,
        lambda d: component(d)["hashes"][0].update(content="0" * 64),
        f"{PACKAGE}: {SBOM} states another sha256",
    ),
    "a component has no sha256": (
        SBOM,
        lambda d: component(d).pop("hashes"),
        f"{PACKAGE}: {SBOM} states another sha256, None",
    ),
    "a component is of no file": (
        SBOM,
        lambda d: component(d).pop("properties"),
        f"{SBOM}: operators names no file of its own",
    ),
    "a component is of a file that is not there": (
        SBOM,
        lambda d: d["components"].append(
            {**component(d), "properties": [{"name": "batch-invariant:path", "value": "wheels/x"}]}
        ),
        f"{SBOM} lists wheels/x, which is not there",
    ),
    "a dependency is left out": (
        SBOM,
        lambda d: edges(d, "channel/noarch/vllm-ascend-1.0-h_0.conda")["dependsOn"].pop(),
        "vllm-ascend needs operators ==1.0 h_*, which its graph does not say",
    ),
    "the graph names what is not there": (
        SBOM,
        lambda d: edges(d, "bundle")["dependsOn"].append("nothing"),
        "its graph names nothing, which is no component",
    ),
    "nothing asks for a component": (
        SBOM,
        lambda d: edges(d, "bundle")["dependsOn"].remove("wheels/solver-1.0-py3-none-any.whl"),
        "nothing in its graph leads to wheels/solver",
    ),
    "the bill is laid out otherwise": (SBOM, lambda d: d.pop("metadata"), "not laid out as"),
    "the index lacks a package": (
        INDEX,
        lambda d: d["packages.conda"].pop(FILE),
        f"{PACKAGE} is in no index of the channel",
    ),
    "the index has another sha256": (
        INDEX,
        lambda d: d["packages.conda"][FILE].update(sha256="0" * 64),
        f"{PACKAGE}: {INDEX} states another sha256",
    ),
    "the index has one package more": (
        INDEX,
        lambda d: d["packages.conda"].update({"more.conda": d["packages.conda"][FILE]}),
        f"{INDEX} lists more.conda, which is not there",
    ),
    "the bundle does not say what it is": (
        "bundle.json",
        lambda d: d.update(soc=None),
        "bundle.json does not say: soc",
    ),
    "the bundle is of another layout": (
        "bundle.json",
        lambda d: d.update(schema=99),
        "bundle.json: expected schema 1, found 99",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_what_does_not_agree_is_told(root: Path, name: str) -> None:
    file, change, expected = LIES[name]
    edit(root / file, lambda document: None)
    sum_again(root)
    assert verify(root).faults == []
    edit(root / file, change)
    sum_again(root)
    faults = verify(root).faults
    assert any(expected in fault for fault in faults), faults


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\xff"])
@pytest.mark.parametrize("name", [SBOM, "bundle.json"])
def test_a_document_that_is_none_is_told(root: Path, name: str, text: str) -> None:
    (root / name).write_text(text, encoding="latin-1")
    sum_again(root)
    assert verify(root).faults == [f"{name} is no JSON object"]


@pytest.mark.parametrize("name", [SBOM, "bundle.json"])
def test_a_bundle_without_a_document_is_told(root: Path, name: str) -> None:
    (root / name).unlink()
    sum_again(root)
    assert verify(root).faults == [f"{name} is missing"]


def test_a_bundle_that_is_right_is_ok_and_the_json_says_the_same(
    archive: Path, root: Path, tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    done = run("--verify", archive, "--json", result)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("bundle: ok: vllm-ascend 1.0 for cpu (conda), ")
    found = json.loads(result.read_text())
    digest = subprocess.run(["sha256sum", archive], capture_output=True, text=True, check=True)
    assert found["sha256"] == digest.stdout.split()[0] and found["sha256"] in done.stdout
    assert found["faults"] == [] and found["files"] > 40
    done = run("--verify", root)
    assert done.returncode == 0 and "sha256" not in done.stdout


def install(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", root / "install", *arguments],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )


def test_the_one_command_makes_a_prefix_and_leaves_nothing_else(root: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    for left in (".prefix.work", ".prefix.new"):  # by one that was killed
        (tmp_path / left).mkdir()
        (tmp_path / left / "half").touch()
    done = install(root, "--prefix", prefix)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"install: ok: vllm-ascend 1.0 for cpu in {prefix}; activate")
    assert (prefix / "share/operators").read_text() == "content"
    assert verify(root).faults == []
    assert [path.name for path in tmp_path.glob(".*")] == [".prefix.lock"]
    again = install(root, "--prefix", prefix)
    assert again.returncode == 0 and f"was already in {prefix}" in again.stdout


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_bundle_is_not_installed(root: Path, tmp_path: Path, name: str) -> None:
    change, expected = DAMAGE[name]
    change(root)
    done = subprocess.run(
        # The script itself may be what was changed.
        [
            *("bash", root / "source/tools/run-provision", "install", "bundle_install", root),
            *("--prefix", tmp_path / "prefix"),
        ],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert expected in done.stderr
    assert "nothing was installed" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "prefix").exists() and not list(tmp_path.glob(".*"))


def test_where_it_cannot_be_installed_one_line_says_why(root: Path, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others/file").touch()
    for prefix, expected in (
        (tmp_path / "others", "exists and was not made by quickstart or from a bundle"),
        (tmp_path / "a blank", "vLLM cannot run from a folder with a blank in its path"),
        (tmp_path / "others/file/prefix", "cannot write to "),
    ):
        done = install(root, "--prefix", prefix)
        assert done.returncode == 3
        assert expected in done.stderr.splitlines()[-1], done.stderr
    assert not (tmp_path / "a blank").exists()
    done = install(root)
    assert done.returncode == 3 and "--prefix" in done.stderr


def test_a_bundle_for_spack_says_what_is_missing(root: Path, tmp_path: Path) -> None:
    done = install(root, "--prefix", tmp_path / "prefix", "--spack", "spack")
    assert done.returncode == 3
    assert "--spack is for a bundle of the kind spack" in done.stderr.splitlines()[-1]
    edit(root / "bundle.json", lambda about: about.update(kind="spack"))
    sum_again(root)
    done = install(root, "--prefix", tmp_path / "prefix", "--spack", "/no/such/spack")
    assert done.returncode == 3
    assert "there is no /no/such/spack; name Spack's command" in done.stderr.splitlines()[-1]
    (tmp_path / "others").mkdir()
    (tmp_path / "others/file").touch()
    done = install(root, "--prefix", tmp_path / "others")
    assert done.returncode == 3
    assert "exists and was not made from a bundle; choose" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("machine", "riscv64", "the bundle is for riscv64, this machine is "),
        ("libc", "99.1", "the bundle was made with glibc 99.1, this machine has "),
        ("installed_bytes", 10**18, "1000000000.0 GB are needed in "),
        ("kind", "other", "this bundle is of the kind 'other'"),
    ],
)
def test_a_machine_that_the_bundle_is_not_for_is_told(
    root: Path, tmp_path: Path, key: str, value: object, expected: str
) -> None:
    edit(root / "bundle.json", lambda about: about.update({key: value}))
    sum_again(root)
    done = install(root, "--prefix", tmp_path / "prefix")
    assert done.returncode == 3
    assert expected in done.stderr.splitlines()[-1]
    assert not (tmp_path / "prefix").exists()
