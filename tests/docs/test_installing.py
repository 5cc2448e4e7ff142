# SPDX-License-Identifier: Apache-2.0
"""Each way to install that the guide gives, command by command, in an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import guide

pytestmark = pytest.mark.slow

ROOT = guide.DOCS.parent
# Variables that would lead to operators, or to an environment, other than the test's.
ELSEWHERE = {"ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH", "PYTHONPATH", "PYTHONHOME", "SOC_VERSION"}


class Shell:
    """A user's: the environment's Python first on the path, the tree as the working directory."""

    def __init__(self, environment: Path, tree: Path) -> None:
        self.prefix, self.tree = environment, tree

    def run(self, text: str) -> str:
        variables = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.tree,
            env=variables | {"PATH": f"{self.prefix}/bin:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-6000:]}"
        return done.stdout

    def files(self) -> set[str]:
        """Everything of the environment but bytecode."""
        return {
            str(path.relative_to(self.prefix))
            for path in self.prefix.rglob("*")
            if "__pycache__" not in path.parts
        }


@pytest.fixture(scope="module")
def closure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A clean copy of the tree, and an environment with what the guide's first step installs."""
    top = tmp_path_factory.mktemp("user")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (top / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, top / "tree" / name)
    subprocess.run([sys.executable, "-m", "venv", top / "env"], check=True)
    shell = Shell(top / "env", top / "tree")
    shell.run(guide.block("id=closure"))
    yield shell
    shutil.rmtree(top)


def quick_check(shell: Shell) -> None:
    printed = shell.run(guide.block("id=quick-check"))
    assert printed == "batch_invariant_ops.npu_matmul_batch_invariant\n"


@pytest.mark.parametrize("way", ["install", "editable"])
def test_pip_installs_all_stages_and_removes_them(closure: Shell, way: str) -> None:
    before = closure.files()
    closure.run({"install": guide.block("id=install"), "editable": guide.block("id=editable")}[way])
    quick_check(closure)
    assert re.search(r"stage 1|operators", closure.run(guide.block("id=doctor")))
    closure.run(guide.block("id=uninstall"))
    assert closure.files() == before


def test_the_script_adds_the_operators_to_an_installed_plugin(closure: Shell) -> None:
    before = closure.files()
    closure.run("pip install --no-deps --no-build-isolation .")
    closure.run(guide.block("id=script"))
    quick_check(closure)
    closure.run(guide.block("id=uninstall-operators"))
    closure.run(guide.block("id=uninstall"))
    assert closure.files() == before
