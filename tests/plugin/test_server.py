# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with the guide's flags: the OpenAI client gets the same logprobs in any company."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import guide

from .conftest import engine_environment

pytestmark = pytest.mark.vllm

REQUESTS = 32
TOKENS = 128
START_SECONDS = 420
HANDING_OVER_SECONDS = 5
MODEL = "Qwen/Qwen3-8B"


class Server:
    """A running `vllm serve`."""

    def __init__(self, folder: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = log
        variable, program, *arguments = shlex.split(guide.block("id=serve").replace("\\\n", ""))
        assert (variable, program) == ("VLLM_BATCH_INVARIANT=1", "vllm")
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", *arguments]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                # The last one adds /pause and /resume to the server, and no more.
                env=engine_environment(
                    VLLM_BATCH_INVARIANT="1", VLLM_LOG_STATS_INTERVAL="1", VLLM_SERVER_DEV_MODE="1"
                ),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
            text: str = answer.read().decode()
            return text

    def post(self, path: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method="POST")
        urllib.request.urlopen(request, timeout=20).close()

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.get("/health")
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(1)
        raise AssertionError(f"the server is not up:\n{self.log.read_text()[-4000:]}")

    def steps(self) -> int:
        """Steps that the engine has made so far, by the server's own metrics."""
        found = re.search(
            r"^vllm:iteration_tokens_total_count\{.*\} ([0-9.e+]+)$", self.get("/metrics"), re.M
        )
        assert found, "no vllm:iteration_tokens_total_count in /metrics"
        return int(float(found[1]))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="module")
def server(guide_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(guide_folder, tmp_path_factory.mktemp("server") / "log")
    try:
        running.wait()
        yield running
    finally:
        running.stop()


def complete(client: Any, number: int) -> tuple[Any, ...]:
    """One completion as the guide asks for it; its text, tokens and logprobs, exactly."""
    answer = client.completions.create(
        model=MODEL,
        prompt="The future of AI is" + " very" * number,
        max_tokens=TOKENS,
        temperature=0.7 if number % 2 == 0 else 0.0,
        seed=42 + number,
        logprobs=1 + number % 5,
        extra_body={"ignore_eos": True},
    )
    choice = answer.choices[0]
    logprobs = choice.logprobs
    return choice.text, logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs


def test_a_request_gets_the_same_logprobs_alone_and_among_31_others(server: Server) -> None:
    from openai import OpenAI

    client = OpenAI(api_key="EMPTY", base_url=f"http://127.0.0.1:{server.port}/v1")
    before = server.steps()
    alone = [complete(client, number) for number in range(REQUESTS)]
    steps_alone = server.steps() - before
    assert len({text for text, *_ in alone}) > REQUESTS // 2, "the prompts should not all agree"
    assert steps_alone >= REQUESTS * TOKENS, "alone, each token is a step"

    everybody_is_here = threading.Barrier(REQUESTS)

    def at_the_same_time(number: int) -> tuple[Any, ...]:
        everybody_is_here.wait()
        return complete(client, number)

    before = server.steps()
    # Nothing runs before all are there, however long a busy machine takes to hand them over.
    server.post("/pause?mode=keep")
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = pool.map(at_the_same_time, range(REQUESTS))
        time.sleep(HANDING_OVER_SECONDS)
        server.post("/resume")
        together = list(answers)
    steps_together = server.steps() - before
    for number in range(REQUESTS):
        # Numbers printed in full: as texts they agree only where all bits do.
        assert repr(together[number]) == repr(alone[number]), f"request {number} differs"
    # One after the other they would agree too: a step served several of them, on the average.
    assert steps_together * 8 <= steps_alone, f"{steps_together} steps, and {steps_alone} alone"


def test_the_guides_client_runs_as_written(server: Server) -> None:
    script = guide.block("id=client").replace("localhost:8000", f"127.0.0.1:{server.port}")
    answers = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert answers[0].stdout == answers[1].stdout


def test_the_log_has_the_lines_that_the_guide_names(server: Server) -> None:
    """The statistics are logged every second, of the requests of the tests above."""
    log = server.log.read_text()
    for line in guide.block("log=serve").splitlines() + guide.block("log=statistics").splitlines():
        assert line in log


def test_the_log_says_what_was_chosen(server: Server) -> None:
    log = server.log.read_text()
    assert "Batch-invariant mode: eager execution is chosen" in log
    assert re.search(r"Batch-invariant mode: \d+ overrides are installed", log)
    assert re.search(r"Batch-invariant mode: KV cache of \S+ GiB, \d+ blocks of 128 tokens", log)
