# SPDX-License-Identifier: Apache-2.0
"""`python -m vllm_ascend.soc identify` and `cann`, run as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soc.npu_smi_text import packed_table
from tests.stub_cann.make import make_stub_cann

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = Path(__file__).parent / "samples"
A2, A3 = (SAMPLES / "npu-smi" / f"{n}-board-c0.txt" for n in ("a2-910b4", "a3-ascend910_9392"))


def run(*arguments: str | Path, stdin: bytes | None = None, **extra: str) -> tuple[int, str, str]:
    """Exit status and both streams; without `stdin` there is none to read."""
    command = [sys.executable, "-P", "-m", "vllm_ascend.soc", *map(str, arguments)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **extra}
    with subprocess.Popen(
        command,
        env=environ,
        cwd="/",
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        output, error = process.communicate(stdin)
    return process.returncode, output.decode(), error.decode()


def test_a_file_or_standard_input_or_this_machines_npu_smi_is_read(tmp_path: Path) -> None:
    assert run("identify", A3) == (0, "ascend910_93\n", "")
    assert run("identify", "-", stdin=A2.read_bytes()) == (0, "ascend910b\n", "")
    assert run("identify", stdin=A3.read_bytes()) == (0, "ascend910_93\n", "")
    tool = tmp_path / "npu-smi"
    (tmp_path / "listing").write_text(packed_table(["Ascend950DT"]))
    tool.write_text(f'#!/bin/sh\nexec cat "{tmp_path}/listing"\n')
    tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for stdin in (None, b""):
        assert run("identify", stdin=stdin, PATH=path) == (0, "ascend950\n", "")


def test_a_closed_standard_input_is_no_input() -> None:
    command = f'"{sys.executable}" -m vllm_ascend.soc identify "$@" <&-'
    done = {}
    for arguments in ((), ("-",)):
        done[arguments] = subprocess.run(
            ["/bin/sh", "-c", command, "sh", *arguments],
            env={"PATH": "/nowhere", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done[arguments].stderr.count("\n") <= 1, done[arguments].stderr
    assert done[("-",)].returncode == 1
    said = "standard input cannot be read: Bad file descriptor; pipe the output of npu-smi info in"
    assert done[("-",)].stderr.startswith(said)
    # Without "-" this machine's own npu-smi is asked, if there is one.
    assert "Bad file descriptor" not in done[()].stderr


def test_identify_as_json_lists_the_chips() -> None:
    status, output, _ = run(
        "identify", "--json", SAMPLES / "npu-smi/a2-910b1-8x-24.1.0.excerpt.txt"
    )
    assert status == 0
    expected = {"soc": "ascend910b", "label": "910b", "product": "Atlas A2", "chips": ["910B1"]}
    assert json.loads(output) == {**expected, "count": 3}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("npu-smi/odd-310p3-duo-no-hbm-25.2.0.txt", "'310P3'"),
        ("npu-smi/odd-first-gen-910b-8x-23.0.rc2.txt", "'910B'"),
        ("npu-smi/err-dcmi-8005.txt", "-8005"),
        ("nothing here", "No such file"),
        ("cann-info", "Is a directory"),
        ("cann-info/version.cfg-8.0.0", "found no chip"),
    ],
)
def test_identify_fails_with_one_line(name: str, said: str) -> None:
    status, output, error = run("identify", SAMPLES / name)
    assert (status, output) == (1, "")
    assert said in error and error.count("\n") == 1


def test_cann_prints_what_a_description_states() -> None:
    info = SAMPLES / "cann-info/toolkit-9.1.0-x86_64-new-layout.info"
    lines = "version=9.1.0\narch=x86_64\npath=/usr/local/Ascend/cann-9.1.0\n"
    assert run("cann", info) == (0, lines, "")
    assert run("cann", info, "--field", "version") == (0, "9.1.0\n", "")
    status, output, _ = run("cann", "--json", ASCEND_HOME_PATH=str(info))
    assert (status, json.loads(output)["arch"]) == (0, "x86_64")


def test_cann_fails_with_one_line() -> None:
    old = SAMPLES / "cann-info/version.cfg-8.0.0"
    for arguments, said in (
        (["cann", "/nothing/here"], "No such file"),
        (["cann", SAMPLES], "found neither"),
        (["cann", A2], "found no version"),
        (["cann", old, "--soc", "910b"], "CANN 8.0.0 at"),
        (["cann", old, "--soc", "h100"], "unknown SoC 'h100'"),
    ):
        status, output, error = run(*arguments)
        assert (status, output) == (1, ""), error
        assert said in error and error.count("\n") == 1


def test_cpu_needs_no_cann_and_an_npu_does(tmp_path: Path) -> None:
    # The variable decides, whatever this machine has.
    nowhere = str(tmp_path / "none")
    assert run("cann", "--soc", "cpu", ASCEND_HOME_PATH=nowhere) == (0, "cpu needs no CANN\n", "")
    status, output, _ = run("cann", "--soc", "cpu", "--json", ASCEND_HOME_PATH=nowhere)
    assert (status, json.loads(output)) == (0, {"version": "", "arch": "", "path": ""})
    assert run("cann", "--soc", "cpu", "--field", "version", ASCEND_HOME_PATH=nowhere) == (
        0,
        "\n",
        "",
    )
    for arguments in (["--soc", "910b"], [], ["/nothing/here", "--soc", "cpu"]):
        status, output, error = run("cann", *arguments, ASCEND_HOME_PATH=nowhere)
        assert (status, output, error.count("\n")) == (1, "", 1)
    # One that is there is described, for cpu too.
    home = make_stub_cann(tmp_path, libraries=False)
    given = run("cann", ASCEND_HOME_PATH=str(home))
    assert given[0] == 0 and run("cann", "--soc", "cpu", ASCEND_HOME_PATH=str(home)) == given


def test_soc_version_is_the_builds_and_help_says_so() -> None:
    assert run("resolve", SOC_VERSION="ascend910b") == run("resolve", SOC_VERSION="")
    _, output, _ = run("resolve", "--help", COLUMNS="400")
    assert "whatever SOC_VERSION says: that variable is for pip's build" in output


@pytest.mark.parametrize("command", ["resolve", "list", "identify", "cann"])
def test_help_has_an_example_and_the_exit_codes(command: str) -> None:
    status, output, _ = run(command, "--help", COLUMNS="400")
    assert status == 0
    assert "Example: " in output and f"python -m vllm_ascend.soc {command}" in output
    assert "Exit code 0; 1 with one line" in output
    assert run(command, "--no-such-option")[0] == 2


def test_neither_torch_nor_vllm_is_imported() -> None:
    program = (
        "import sys; from vllm_ascend.soc.command import main; main(['identify', sys.argv[1]])\n"
        "print(sorted({'torch', 'vllm', 'numpy', 'packaging'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, A2],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "ascend910b\n[]\n", done.stderr
