# SPDX-License-Identifier: Apache-2.0
"""An engine gets a clean environment, is followed, and never outlives its check."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_ascend.batch_invariant.check import engine_process
from vllm_ascend.batch_invariant.check.configuration import Configuration
from vllm_ascend.batch_invariant.check.engine import one_line
from vllm_ascend.batch_invariant.check.engine_process import (
    EngineFailure,
    engine_environment,
    run_engine,
)
from vllm_ascend.batch_invariant.check.workload import make_workload

WORKLOAD = make_workload(prompts=1, batches=(2,), max_tokens=2, vocab_size=300, max_positions=512)


def configuration(subject: str = "mode", threads: int = 2) -> Configuration:
    return Configuration("/models/m", "bfloat16", threads, subject)


def test_the_callers_settings_do_not_reach_the_engine() -> None:
    inherited = {
        "PATH": "/bin",
        "VLLM_BATCH_INVARIANT": "1",
        "VLLM_PLUGINS": "none",
        "OMP_NUM_THREADS": "7",
        "MKL_CBWR": "AVX2",
        "BI_CPU_ISA": "portable",
        "ASCEND_CUSTOM_OPP_PATH": "/opp",
    }
    stock = engine_environment(configuration("stock"), inherited)
    assert "VLLM_BATCH_INVARIANT" not in stock and "VLLM_PLUGINS" not in stock
    assert "MKL_CBWR" not in stock
    assert stock["OMP_NUM_THREADS"] == "2"
    assert stock["BI_CPU_ISA"] == "portable" and stock["ASCEND_CUSTOM_OPP_PATH"] == "/opp"
    mode = engine_environment(configuration("mode"), {})
    assert mode["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_BATCH_INVARIANT_DISABLE" not in mode
    without = engine_environment(configuration("without:vllm::linear+aten::mm"), {})
    assert without["VLLM_BATCH_INVARIANT"] == "1"
    assert without["VLLM_BATCH_INVARIANT_DISABLE"] == "vllm::linear,aten::mm"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "1 validation error for X\n  Value error, too bad [type=value_error]",
            "too bad",
        ),
        ("\n  first\nsecond", "first"),
        ("", "ValueError"),
    ],
)
def test_errors_are_cut_to_the_line_that_says_something(text: str, line: str) -> None:
    assert one_line(ValueError(text)) == line


def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str) -> None:
    """Has `run_engine` start this program in the engine's place."""
    package = tmp_path / "programs"
    package.mkdir(exist_ok=True)
    script = package / "engine.py"
    script.write_text("import json, os, sys, time\njob = json.load(open(sys.argv[-1]))\n" + source)
    starter = package / "python"
    starter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    starter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(starter))


def test_a_result_is_read_and_progress_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(
        monkeypatch,
        tmp_path,
        """
out = os.fdopen(job["progress"], "w")
out.write(json.dumps({"phase": "alone", "done": 1}) + "\\n")
json.dump({
    "runs": {"alone": [["greedy0", ["1 1 1:bf800000"]]], "2": [["greedy0", ["1 1 1:bf800000"]]],
             "continued": []},
    "steps": {"alone": [[[1, 1, 3, 1]]], "2": [[[2, 2, 6, 1]]]},
    "seconds": {"start": 1.5}, "overrides": [{"name": "vllm::linear"}], "operators": None,
    "versions": {"vllm": "0"}, "worker": "w", "dtype": "bfloat16",
}, open(job["result"], "w"))
""",
    )
    events: list[tuple[str, int]] = []
    result = run_engine(configuration(), WORKLOAD, None, lambda *event: events.append(event))
    assert events[-1] == ("alone", 1)
    assert result.batches[2] == (("greedy0", ("1 1 1:bf800000",)),)
    assert result.steps[2][0][0].requests == 2
    assert result.overrides == ("vllm::linear",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("json.dump({'error': 'no operators'}, open(job['result'], 'w'))", "no operators"),
        ("print('out of luck'); sys.exit(7)", "exit code 7: out of luck"),
        ("os.kill(os.getpid(), 4)", "killed by SIGILL"),
    ],
)
def test_a_failed_engine_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, said: str
) -> None:
    program(monkeypatch, tmp_path, source)
    with pytest.raises(EngineFailure) as failed:
        run_engine(configuration(), WORKLOAD, None, lambda *_: None)
    message = str(failed.value)
    assert said in message and "\n" not in message
    assert message.startswith("m bfloat16, 2 threads, mode: ")


def test_a_silent_engine_is_shown_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine_process, "HEARTBEAT", 0.05)
    program(monkeypatch, tmp_path, "time.sleep(1); sys.exit(1)")
    events: list[tuple[str, int]] = []
    with pytest.raises(EngineFailure):
        run_engine(configuration(), WORKLOAD, None, lambda *event: events.append(event))
    assert len(events) > 3 and set(events) == {("start", 0)}


def test_an_interrupted_check_ends_its_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    program(
        monkeypatch,
        tmp_path,
        f"""
open({str(note)!r}, "w").write(str(os.getpid()))
os.write(job["progress"], b'{{"phase": "start"}}\\n')
time.sleep(60)
""",
    )

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_engine(configuration(), WORKLOAD, None, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_an_engine_ends_when_its_check_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"""
import os, time
from vllm_ascend.batch_invariant.check.engine import end_with_parent
end_with_parent(os.getppid())
open({str(note)!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
    start = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    parent = subprocess.Popen([sys.executable, "-c", start, child])
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = int(note.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            break  # dead, waiting for whoever adopted it
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{pid}").exists()
