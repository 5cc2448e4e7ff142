# SPDX-License-Identifier: Apache-2.0
"""The Conda commands of docs/clusters.md, and what its table says of Conda's messages."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import guide
from tests.recipes.conftest import Conda

DOCUMENT = "clusters.md"
NPU = "ascend910b"

# For each message of the table: what is asked for, on which machine.
ASKED: dict[str, tuple[str, str]] = {
    "__ascend * ascend950, which conflicts with any installable versions": (
        'vllm-ascend "ascend-soc * ascend950"',
        "910b",
    ),
    "__ascend <0a0, which conflicts with any installable versions": ("vllm-ascend", "310P3"),
    "ascend-soc[build=910b]": ('vllm-ascend "ascend-soc * 910b"', ""),
}


def test_each_message_is_asked_for() -> None:
    text = (guide.DOCS / DOCUMENT).read_text()
    section = text.partition("\nConda's:\n")[2].partition("\nAnd at installation")[0]
    assert re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE) == list(ASKED)


class Login:
    """A shell in which conda says what it would do, on a machine without an NPU."""

    def __init__(self, conda: Conda, channel: str, plugin: Path, folder: Path) -> None:
        self.conda = conda
        self.environ = conda.environ | {
            "PYTHONPATH": str(plugin),
            "CHANNEL": channel,
            "PREFIX": str(folder / "prefix"),
            "CONDA_OVERRIDE_ASCEND": "",
        }

    def run(self, text: str, fails: bool = False) -> str:
        command = shlex.join(self.conda.command)
        would = "--dry-run --json --override-channels"
        done = subprocess.run(
            ["bash", "-euc", f'conda() {{ {command} "$@" {would}; }}\n{text}'],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (done.returncode != 0) == fails, done.stdout
        return done.stdout

    def choice(self, text: str) -> str:
        """The SoC of what would be installed."""
        said = self.run(text)
        packages = json.loads(said[said.index("{") :])["actions"]["LINK"]
        (found,) = (one["build_string"] for one in packages if one["name"] == "ascend-soc")
        return str(found)


@pytest.fixture
def login(conda: Conda, channel: str, plugin: Path, tmp_path: Path) -> Login:
    return Login(conda, channel, plugin, tmp_path)


@pytest.mark.slow
def test_a_login_node_names_the_package_or_the_machine(login: Login) -> None:
    assert login.choice(guide.block("id=login-conda", DOCUMENT)) == NPU
    assert login.choice(guide.block("id=login-override", DOCUMENT)) == NPU
    # And without either.
    assert login.choice('conda create -p "$PREFIX" -c "$CHANNEL" vllm-ascend') == "cpu"


@pytest.mark.slow
@pytest.mark.parametrize("message", ASKED)
def test_the_messages_of_the_table(login: Login, message: str) -> None:
    specs, machine = ASKED[message]
    create = f'CONDA_OVERRIDE_ASCEND={machine} conda create -p "$PREFIX" -c "$CHANNEL" {specs}'
    assert message in login.run(create, fails=True)
