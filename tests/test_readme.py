# SPDX-License-Identifier: Apache-2.0
"""Each command of README.md is run, and each of its claims shown, by a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()

# A piece of the README, to the letter, and the tests that show it. `.ci/run` runs the two commands.
SHOWN: dict[str, list[str]] = {
    "./scripts/quickstart\n": [".ci/run"],
    "./scripts/test\n": [".ci/run"],
    "Every download is checked against a sha256 in `locks/`": [
        "tests/provision/test_lockfile.py",
        "tests/provision/test_standin.py",
    ],
    "Both commands continue where a killed run stopped": ["tests/provision/test_channel.py"],
    "`./scripts/bundle cpu` makes one archive that installs where\nthere is no network": [
        "tests/bundle/test_cpu.py"
    ],
    "and `--verify` checks it": ["tests/bundle/test_verify.py", "tests/bundle/test_archive.py"],
    "bash csrc/build_batch_invariant_ops.sh cpu\n": [
        "tests/stages/test_script.py",
        "tests/stages/test_script_errors.py",
    ],
    "python tools/provision/vllm_metadata.py\n": [
        "scripts/test",
        "tests/provision/test_vllm_metadata.py",
    ],
    "COMPILE_CUSTOM_KERNELS=1 VLLM_BATCH_INVARIANT=1 pip install . --no-build-isolation": [
        "tests/stages/test_pip_install.py"
    ],
    "`pip uninstall vllm-ascend`\nremoves all of it": ["tests/stages/test_pip_install.py"],
    "pip install --no-deps --no-build-isolation .": ["recipes/conda/vllm-ascend/build.sh"],
    "`--uninstall` removes what it installed": ["tests/stages/test_script.py"],
    "import batch_invariant_ops\nimport torch\n": ["tests/ops/test_quick_check.py"],
    "VLLM_BATCH_INVARIANT=1 vllm serve": ["tests/plugin/test_server.py"],
    "Offline, set the variable": ["tests/plugin/test_offline_script.py"],
    "What the mode cannot honour is refused at start-up": ["tests/plugin/test_guard.py"],
    "so none is ever preempted": ["tests/plugin/test_scheduler.py", "tests/plugin/test_engine.py"],
    "nothing is patched and stock vLLM runs": ["tests/plugin/test_switch.py"],
    "python -m vllm_ascend.batch_invariant check": [
        "tests/check/test_check_vllm.py",
        "tests/check/test_exit_codes.py",
    ],
    "`--plot FILE.png` draws it": ["tests/check/test_plot.py"],
    "./scripts/doctor\n": ["tests/doctor/test_doctor.py"],
    "python -m vllm_ascend.batch_invariant report": ["tests/report/test_report_command.py"],
    "nor on the number of threads": [
        "tests/plugin/test_engine.py",
        "tests/ops/test_products.py",
        "tests/stage1/test_kernels.py",
    ],
    "one variant per SoC (`soc.toml`)": [
        "tests/recipes/test_rendering.py",
        "tests/recipes/test_soc_choice.py",
    ],
    "stage 1 goes to `<sys.prefix>/share/ascend/opp`": ["tests/ops/test_stage_one_search.py"],
}


@pytest.mark.parametrize("claim", SHOWN)
def test_a_claim_stands_in_the_readme_and_is_shown(claim: str) -> None:
    assert claim in README, "the README changed: change what shows it too"
    for name in SHOWN[claim]:
        path = ROOT / name
        assert path.is_file(), f"{name} is gone"
        if path.suffix == ".py":
            tree = ast.parse(path.read_text())
            tests = [
                node.name
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            ]
            assert tests, f"{name} holds no test"


def test_every_command_of_the_readme_is_shown() -> None:
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        assert any(claim in block for claim in SHOWN), f"no test shows:\n{block}"


def test_what_ci_runs_is_what_the_readme_says() -> None:
    ci = (ROOT / ".ci/run").read_text()
    for command in ("./scripts/test", "./scripts/quickstart"):
        assert f"```bash\n{command}\n```" in README
        assert re.search(rf"^\s*{re.escape(command)}\b", ci, flags=re.MULTILINE)


def test_every_path_that_the_readme_names_exists() -> None:
    table = re.findall(r"^\| `([^`]+)`(?:, `([^`]+)`)? \|", README, flags=re.MULTILINE)
    names = [name for row in table for name in row if name and "<" not in name]
    assert "csrc/cpu" in names
    missing = [name for name in names if not (ROOT / name).exists()]
    assert missing == []
