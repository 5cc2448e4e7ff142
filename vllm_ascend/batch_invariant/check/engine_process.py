# SPDX-License-Identifier: Apache-2.0
"""Runs `engine` in a process with a clean environment, and follows its progress."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .comparison import Output
from .configuration import Configuration, ConfigurationError, subject_environment
from .occupancy import Step, steps_from_lists
from .workload import Workload

# Variables that would change what a run computes or how many threads it uses are not handed on;
# each run sets what it needs.
DROPPED_PREFIXES = ("VLLM_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_")
# What vLLM's settings need beside the subject's.
SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The second model runner needs Triton.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    # Threads that spin while they wait slow a busy machine down many times over; bits are the same.
    "OMP_WAIT_POLICY": "PASSIVE",
}
# Seconds without news after which progress is shown again: it tells a slow engine from a dead one.
HEARTBEAT = 5.0
ENGINE = "vllm_ascend.batch_invariant.check.engine"
# The end of a dead engine's log in which its last words are looked for.
LOG_TAIL_BYTES = 2000


class EngineFailure(ConfigurationError):
    """An engine could not start or died. One line; the log's path is part of it."""


@dataclass(frozen=True)
class EngineResult:
    """What one engine start gave."""

    configuration: Configuration
    workload: Workload
    alone: Mapping[str, Output]
    batches: Mapping[int, tuple[tuple[str, Output], ...]]
    """Batch size → (what is compared, output), batch after batch; see `engine.outputs_of`."""
    continued: tuple[tuple[str, Output], ...]
    """(request, output) where the first tokens of the request were given as part of the prompt."""
    steps: Mapping[int, tuple[tuple[Step, ...], ...]]
    """Batch size → the steps of each submitted batch; 1 is the runs alone."""
    seconds: Mapping[str, float]
    overrides: tuple[str, ...]
    operators: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    worker: str
    dtype: str


def engine_environment(
    configuration: Configuration, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment of an engine: the caller's without settings of vLLM and of threads."""
    kept = {
        name: value for name, value in inherited.items() if not name.startswith(DROPPED_PREFIXES)
    }
    return {
        **kept,
        **SETTINGS,
        "OMP_NUM_THREADS": str(configuration.threads),
        **subject_environment(configuration.subject),
    }


def parse_result(
    configuration: Configuration, workload: Workload, document: Mapping[str, Any]
) -> EngineResult:
    """The engine's result document, typed."""

    def outputs(phase: str) -> tuple[tuple[str, Output], ...]:
        return tuple((name, tuple(tokens)) for name, tokens in document["runs"][phase])

    sizes = [phase for phase in document["runs"] if phase.isdigit()]
    steps = {
        1 if phase == "alone" else int(phase): tuple(steps_from_lists(rows) for rows in batches)
        for phase, batches in document["steps"].items()
        if phase == "alone" or phase.isdigit()
    }
    return EngineResult(
        configuration=configuration,
        workload=workload,
        alone=dict(outputs("alone")),
        batches={int(size): outputs(size) for size in sizes},
        continued=outputs("continued"),
        steps=steps,
        seconds=document["seconds"],
        overrides=tuple(override["name"] for override in document["overrides"]),
        operators=document["operators"],
        versions=document["versions"],
        worker=document["worker"],
        dtype=document["dtype"],
    )


def _died(returncode: int, log: Path) -> str:
    tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    if returncode < 0:
        how = f"was killed by {signal.Signals(-returncode).name}"
    else:
        how = f"ended with exit code {returncode}"
    return f"the engine {how}: {last}"


def _lines(descriptor: int, patience: float) -> Iterator[bytes | None]:
    """The lines written to a pipe, until its end; None after `patience` seconds without one."""
    waiting = b""
    while True:
        if not select.select([descriptor], [], [], patience)[0]:
            yield None
            continue
        read = os.read(descriptor, select.PIPE_BUF)
        if not read:
            return
        *whole, waiting = (waiting + read).split(b"\n")
        yield from whole


def run_program(
    module: str,
    configuration: Configuration,
    job: Mapping[str, Any],
    progress: Callable[[str, int], None],
) -> Mapping[str, Any]:
    """Runs `module`, which serves `job` (see `engine.serve`); returns its result document.

    Calls `progress(phase, requests done)`, again every HEARTBEAT seconds where nothing new
    happens. Raises EngineFailure in one line where the program does
    not start, dies or reports an error. It is killed when this function is left, also by
    KeyboardInterrupt, and by the kernel when this process ends.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-ascend-check-") as scratch:
        job_file, result_file = Path(scratch, "job.json"), Path(scratch, "result.json")
        log_file = Path(scratch, "log")
        read_end, write_end = os.pipe()
        try:
            places = {"result": str(result_file), "progress": write_end, "parent": os.getpid()}
            document = {**job, "configuration": asdict(configuration), **places}
            job_file.write_text(json.dumps(document), encoding="utf-8")
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", module, str(job_file)],
                    env=engine_environment(configuration, os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write_end,),
                )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        try:
            phase, done = "start", 0
            for line in _lines(read_end, HEARTBEAT):
                if line is not None:
                    event = json.loads(line)
                    phase, done = event["phase"], event.get("done", 0)
                progress(phase, done)
            returncode = process.wait()
        finally:
            os.close(read_end)
            if process.poll() is None:
                process.kill()
                process.wait()
        if not result_file.is_file():
            raise EngineFailure(f"{configuration.label()}: {_died(returncode, log_file)}")
        result: dict[str, Any] = json.loads(result_file.read_text(encoding="utf-8"))
        if "error" in result:
            raise EngineFailure(f"{configuration.label()}: {result['error']}")
        return result


def run_engine(
    configuration: Configuration,
    workload: Workload,
    cache_bytes_per_token: int | None,
    progress: Callable[[str, int], None],
) -> EngineResult:
    """Runs the workload under the configuration; for the rest see `run_program`."""
    job = {"workload": workload.as_json(), "cache_bytes_per_token": cache_bytes_per_token}
    document = run_program(ENGINE, configuration, job, progress)
    return parse_result(configuration, workload, document)
