# SPDX-License-Identifier: Apache-2.0
"""A CANN is described by what its installer left, wherever that lies, or there is a sentence."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc
from vllm_ascend.soc import cann

SAMPLES = Path(__file__).parent / "samples/cann-info"


@pytest.mark.parametrize(
    ("name", "version", "arch", "path"),
    [
        ("toolkit-8.0.0-aarch64.info", "8.0.0", "aarch64", "ascend-toolkit/8.0.0/aarch64-linux"),
        (
            "toolkit-8.2.RC1-aarch64.info",
            "8.2.RC1",
            "aarch64",
            "ascend-toolkit/8.2.RC1/aarch64-linux",
        ),
        ("toolkit-9.1.0-x86_64-new-layout.info", "9.1.0", "x86_64", "cann-9.1.0"),
    ],
)
def test_an_install_info_states_everything(name: str, version: str, arch: str, path: str) -> None:
    assert cann.read(SAMPLES / name) == cann.Cann(version, arch, f"/usr/local/Ascend/{path}")


def test_a_version_cfg_states_the_version_and_its_place_the_rest(tmp_path: Path) -> None:
    assert cann.read(SAMPLES / "version.cfg-8.0.0") == cann.Cann("8.0.0", "", str(SAMPLES))
    inner = tmp_path / "8.0.0/aarch64-linux"
    inner.mkdir(parents=True)
    (inner / "version.cfg").write_bytes((SAMPLES / "version.cfg-8.0.0").read_bytes())
    for path in (inner, inner / "version.cfg"):
        assert cann.read(path) == cann.Cann("8.0.0", "aarch64", str(inner))
    assert cann.read(inner.parent) == cann.Cann("8.0.0", "aarch64", str(inner.parent))


def test_the_running_toolkit_counts_and_without_one_they_must_agree(tmp_path: Path) -> None:
    file = tmp_path / "version.cfg"
    file.write_text(
        "runtime_running_version=[7.6:8.0.0]\ntoolkit_running_version=[7.7.0.1:8.1.RC1]\n"
        "toolkit_upgrade_version=[7.8.0.1:8.3.RC1]\n"
    )
    assert cann.read(file).version == "8.1.RC1"
    file.write_text("runtime_running_version=[7.6:8.0.0]\nhccl_running_version=[7.7:8.1.RC1]\n")
    with pytest.raises(cann.CannError, match="found no version"):
        cann.read(file)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=7.6.0.1.220\nversion_dir=8.0.0\ntimestamp=20241220\n", "8.0.0"),
        ("version=9.1.0-beta.1\narch=aarch64\n", "9.1.0-beta.1"),
        (" Version = 8.0.T63 \r\n", "8.0.T63"),
        ("version=9.1.0.beta.3\n", "9.1.0.beta.3"),
    ],
)
def test_a_version_info_states_the_version(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version.info").write_text(text)
    assert cann.read(tmp_path).version == cann.read(tmp_path / "version.info").version == version


@pytest.mark.parametrize(
    "text",
    ["", "Version=7.6.0.1.220\n", "version=\n", "version=unknown\n", "version\n9.1.0\n", "\0"],
)
def test_a_file_without_cann_s_version_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "version.info").write_text(text)
    for path in (tmp_path, tmp_path / "version.info"):
        with pytest.raises(cann.CannError, match=re.escape(str(path))) as caught:
            cann.read(path)
        assert "\n" not in str(caught.value)


def test_of_a_directory_the_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    info = SAMPLES / "toolkit-9.1.0-x86_64-new-layout.info"
    file = tmp_path / "x86_64-linux" / cann.INFO
    file.parent.mkdir()
    for text in ("", info.read_text().partition("version=")[0]):
        file.write_text(text)
        with pytest.raises(cann.CannError, match="the file is cut off or incomplete") as caught:
            cann.read(tmp_path)
        assert str(file) in str(caught.value) and "give its directory" not in str(caught.value)
    # Another that is whole does as well.
    (tmp_path / "version.info").write_text("version=9.1.0\n")
    assert cann.read(tmp_path).version == "9.1.0"


@pytest.mark.parametrize("layout", ["new", "old"])
def test_a_directory_is_found_from_where_people_point(tmp_path: Path, layout: str) -> None:
    home = make_stub_cann(tmp_path, "8.5.0", "aarch64", layout, libraries=False)
    places = [home, tmp_path]
    places += [tmp_path / "cann"] if layout == "new" else [home.parent, home / "aarch64-linux"]
    for place in places:
        found = cann.read(place)
        assert (found.version, found.arch) == ("8.5.0", "aarch64")
        assert Path(found.path).samefile(home) or Path(found.path).parent.samefile(home)


def test_the_environment_names_a_cann_before_the_default_place(tmp_path: Path) -> None:
    installed = make_stub_cann(tmp_path / "usr/local/Ascend", "9.1.0", "x86_64", libraries=False)
    other = make_stub_cann(tmp_path / "site", "9.0.0", "aarch64", "old", libraries=False)
    assert cann.find({}, tmp_path).path == str(installed.parent / "cann")
    assert cann.find({"ASCEND_HOME_PATH": str(other)}, tmp_path).version == "9.0.0"
    assert cann.find({"ASCEND_TOOLKIT_HOME": str(other)}, tmp_path).arch == "aarch64"
    assert cann.find({"ASCEND_OPP_PATH": str(other / "opp")}, tmp_path).version == "9.0.0"
    # Never another than the one that was named.
    with pytest.raises(cann.CannError, match=r"^ASCEND_HOME_PATH: .*nothing/here"):
        cann.find({"ASCEND_HOME_PATH": "/nothing/here"}, tmp_path)
    with pytest.raises(cann.CannError, match=r"CANN was not found.*source CANN's set_env.sh"):
        cann.find({}, tmp_path / "empty")
    user = make_stub_cann(tmp_path / "home/Ascend", "8.5.0", libraries=False)
    home = {"HOME": str(tmp_path / "home")}
    assert Path(cann.find(home, tmp_path / "empty").path).samefile(user)


def test_versions_are_in_cann_s_order() -> None:
    ordered = [
        *("8.0.T63", "8.0.0", "8.1.RC1", "8.2.RC1", "8.2.RC2", "8.5.0.alpha001", "8.5.0"),
        *("8.5.1", "9.0.0-beta.2", "9.0.0", "9.1.0-beta.1", "9.1.0.beta.3", "9.1.0", "10.0.0"),
    ]
    assert all(cann.order(a) < cann.order(b) for a, b in itertools.pairwise(ordered))
    assert cann.order("9.1") == cann.order("9.1.0")


def test_a_cann_that_does_not_do_is_refused_with_what_would() -> None:
    for row in soc.rows():
        cann.require(cann.Cann("9.1.0", "x86_64", "/opt/cann"), row, "x86_64")
        cann.require(cann.Cann("9.1.0", "", "/opt/cann"), row, "x86_64")
    with pytest.raises(
        cann.CannError, match=r"8\.5\.0 at /opt/cann is too old for ascend950.*9\.1"
    ):
        cann.require(cann.Cann("8.5.0", "x86_64", "/opt/cann"), soc.resolve("950"), "x86_64")
    with pytest.raises(cann.CannError, match="is too old"):
        cann.require(cann.Cann("9.1.0-beta.1", "x86_64", "/opt"), soc.resolve("950"), "x86_64")
    with pytest.raises(cann.CannError, match="is for aarch64; expected one for x86_64"):
        cann.require(cann.Cann("9.1.0", "aarch64", "/opt/cann"), soc.resolve("910b"), "x86_64")
