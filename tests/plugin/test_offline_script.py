# SPDX-License-Identifier: Apache-2.0
"""The guide's offline script runs as it is written: without `if __name__ == "__main__":`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import guide
from vllm_ascend.batch_invariant.main_module import guarded_by_name

from .conftest import engine_environment

# With the condition, so that vLLM spawns its engine.
GUARDED = """
import os
os.environ["VLLM_BATCH_INVARIANT"] = "1"

def main():
    from vllm import LLM, SamplingParams
    llm = LLM(model="Qwen/Qwen3-8B", enable_prefix_caching=False, enable_chunked_prefill=False,
              block_size=128)
    for prompt in ("The future of AI is", "Machine learning enables", "Deep learning models can"):
        # Alone, each by itself.
        output = llm.generate([prompt], SamplingParams(temperature=0.7, max_tokens=100, seed=42))[0]
        print(f"Prompt: {output.prompt!r}")
        print(f"Generated: {output.outputs[0].text!r}\\n")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("source", "guarded"),
    [
        ("x = 1\nif __name__ == '__main__':\n    pass\n", True),
        ('if "__main__" == __name__:\n    pass\n', True),
        ("if 1:\n    pass\nprint(__name__)\n", False),
        ("def f():\n    if __name__ == '__main__':\n        pass\n", False),
        ("", False),
    ],
)
def test_a_script_is_guarded_by_a_condition_at_its_top_level(source: str, guarded: bool) -> None:
    assert guarded_by_name(source) is guarded


def run(script: Path, folder: Path) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=engine_environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [
        line for line in done.stdout.splitlines() if line.startswith(("Prompt: ", "Generated: "))
    ]
    return "\n".join(printed), done.stdout + done.stderr


@pytest.mark.vllm
def test_the_guides_script_runs_as_written_and_agrees_with_each_prompt_alone(
    guide_folder: Path, tmp_path: Path
) -> None:
    """The three share a batch in the script's process; alone, each runs in a spawned engine."""
    batch, alone = tmp_path / "guide.py", tmp_path / "guarded.py"
    batch.write_text(guide.block("id=offline"))
    alone.write_text(GUARDED)
    printed, log = run(batch, guide_folder)
    assert printed.count("Generated: ") == 3
    assert "the engine runs in this process" in log
    printed_alone, log_alone = run(alone, guide_folder)
    assert "the engine runs in this process" not in log_alone
    assert printed_alone == printed
