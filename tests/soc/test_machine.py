# SPDX-License-Identifier: Apache-2.0
"""This machine's SoC: npu-smi is run, and what it says is taken as a text is; see test_npu_smi."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soc.npu_smi_text import board, packed_table
from tests.stub_cann.make import make_stub_cann
from vllm_ascend import soc
from vllm_ascend.soc import machine, npu_smi

Node = Callable[..., tuple[dict[str, str], Path]]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A machine: its environment, and the directory that stands for `/`."""

    def make(listing: str, board_text: str = "", status: int = 0) -> tuple[dict[str, str], Path]:
        folder = tmp_path / "usr/local/bin"
        folder.mkdir(parents=True)
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/davinci0").touch()
        (tmp_path / "listing").write_text(listing)
        (tmp_path / "board").write_text(board_text)
        (folder / "npu-smi").write_text(
            "#!/bin/sh\n"
            f'echo "$@" >> "{tmp_path}/asked"\n'
            f'if [ "$2" = -t ]; then exec cat "{tmp_path}/board"; fi\n'
            f'cat "{tmp_path}/listing" >&2\n'
            f"exit {status}\n"
        )
        (folder / "npu-smi").chmod(0o755)
        return {"PATH": "/usr/bin:/bin"}, tmp_path

    return make


@pytest.mark.parametrize("row", [row for row in soc.rows() if row.is_npu], ids=lambda row: row.name)
def test_the_default_is_the_machines_npu(node: Node, row: soc.Soc) -> None:
    environ, root = node(packed_table([row.chips[0].partition("_")[0]]))
    assert soc.default(environ, root) is row
    assert (root / "asked").read_text() == "info\n"


def test_a_board_is_asked_where_the_table_does_not_decide(node: Node) -> None:
    listing = packed_table(["Ascend910"], hbm=None, first=5)
    environ, root = node(listing, board("Ascend910_9392", 5))
    assert soc.default(environ, root).name == "ascend910_93"
    assert (root / "asked").read_text() == "info\ninfo -t board -i 5 -c 0\n"


def test_an_unsupported_chip_is_named_and_cpu_is_not_chosen(node: Node) -> None:
    environ, root = node(packed_table(["310P3"], hbm=None))
    with pytest.raises(soc.UnsupportedSocError, match="'310P3'"):
        soc.default(environ, root)


def test_a_fault_of_the_driver_is_told_and_cpu_is_not_chosen(node: Node) -> None:
    environ, root = node("dcmi module initialize failed. ret is -8005\n", status=255)
    with pytest.raises(npu_smi.DriverFaultError, match="-8005"):
        machine.identify(environ, root)
    with pytest.raises(soc.UndecidedSocError, match=r"davinci0\).*-8005.*name the SoC") as caught:
        soc.default(environ, root)
    assert "\n" not in str(caught.value)


def test_a_driver_that_hangs_or_does_not_run_is_told(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ, root = node("")
    executable = root / "usr/local/bin/npu-smi"
    executable.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(npu_smi.NpuSmiError, match="npu-smi does not run"):
        machine.identify(environ, root)

    def hang(command: list[str], **settings: object) -> None:
        raise subprocess.TimeoutExpired(command, machine.PATIENCE)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(npu_smi.DriverFaultError, match=r"info did not end .* hangs"):
        machine.identify(environ, root)


def test_an_npu_without_npu_smi_asks(node: Node) -> None:
    environ, root = node("")
    (root / "usr/local/bin/npu-smi").unlink()
    with pytest.raises(soc.UndecidedSocError, match=r"npu-smi is neither on PATH.*name the SoC"):
        soc.default(environ, root)


def test_default_is_cpu_where_there_is_no_npu_and_no_cann(tmp_path: Path) -> None:
    assert soc.default({}, tmp_path).name == "cpu"
    assert soc.default({"ASCEND_HOME_PATH": ""}, tmp_path).name == "cpu"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci_manager").touch()  # a driver without a device
    assert soc.default({}, tmp_path).name == "cpu"


def test_default_asks_on_a_login_node(tmp_path: Path) -> None:
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        with pytest.raises(soc.UndecidedSocError, match=f"{variable}.*name the SoC: one of"):
            soc.default({variable: "/opt/cann"}, tmp_path)
    make_stub_cann(tmp_path / "usr/local/Ascend", libraries=False)
    with pytest.raises(soc.UndecidedSocError, match="CANN is installed"):
        soc.default({}, tmp_path)
