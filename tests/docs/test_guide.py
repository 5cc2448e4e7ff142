# SPDX-License-Identifier: Apache-2.0
"""The documents: each command is run by a test or marked as one for an NPU, in two languages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import guide
from vllm_ascend import soc
from vllm_ascend.batch_invariant.tiny_models import make_model

ROOT = guide.DOCS.parent
TRANSLATIONS = {"guide.zh-CN.md": "guide.md", "clusters.zh-CN.md": "clusters.md"}
DOCUMENTS = sorted(path.name for path in guide.DOCS.glob("*.md"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the guide's model name leads to a tiny model."""
    top: Path = tmp_path_factory.mktemp("guide")
    make_model("qwen3", top / "Qwen/Qwen3-8B")
    return top


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block's text as it stands, with this Python first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euc", text],
        cwd=folder,
        env=os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_is_run_or_is_marked_for_an_npu(document: str) -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    used = set(re.findall(r'guide\.block\("([a-z]+=[a-z-]+)"', sources))
    for found in guide.blocks(document):
        assert found.mark == "npu" or found.mark in used, f"no test runs:\n{found.text}"


@pytest.mark.parametrize("translation", TRANSLATIONS)
def test_a_translation_has_the_same_commands(translation: str) -> None:
    assert guide.blocks(translation) == guide.blocks(TRANSLATIONS[translation])


@pytest.mark.parametrize("translation", TRANSLATIONS)
def test_a_translation_has_the_same_sections_and_tables(translation: str) -> None:
    def shape(name: str) -> list[str]:
        return [
            re.match(r"#+|\||- \*\*|\d\. ", line)[0]  # type: ignore[index]
            for line in (guide.DOCS / name).read_text().splitlines()
            if re.match(r"#+ |\||- \*\*|\d\. ", line)
        ]

    assert shape(translation) == shape(TRANSLATIONS[translation])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_links_lead_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (guide.DOCS / document).read_text())
    assert links
    assert [link for link in links if not (guide.DOCS / link).exists()] == []


def test_the_commands_for_an_npu_name_socs_of_the_table() -> None:
    text = guide.block("npu")
    named = re.findall(r"build_batch_invariant_ops\.sh (\S+)", text)
    assert named == [row.name for row in soc.rows() if row.is_npu]
    assert (guide.DOCS / "guide.md").read_text().count("`ascend950`") >= 1


def test_the_bounds_of_cann_are_those_of_the_table() -> None:
    text = (guide.DOCS / "guide.md").read_text()
    oldest = {row.name: row.min_cann for row in soc.rows() if row.is_npu}
    assert f"CANN ≥ {oldest['ascend910b']} (950: ≥ {oldest['ascend950']})" in text
    assert oldest["ascend910b"] == oldest["ascend910_93"]


def test_quickstart_is_what_ci_runs() -> None:
    command = guide.block("id=quickstart").strip()
    assert re.search(rf"^{re.escape(command)}\b", (ROOT / ".ci/run").read_text(), re.MULTILINE)


@pytest.mark.vllm
def test_report_of_the_guide(folder: Path) -> None:
    done = run(guide.block("id=enable") + guide.block("id=report"), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "uncovered" in done.stdout


@pytest.mark.vllm
@pytest.mark.slow
def test_check_of_the_guide(folder: Path) -> None:
    done = run(guide.block("id=check"), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical" in done.stdout
