# SPDX-License-Identifier: Apache-2.0
"""Runs a workload in a vLLM engine: `python -m vllm_ascend.batch_invariant.check.engine JOB`.

A program of its own, because the mode, the number of threads and vLLM's settings belong to a
process. The engine runs inside it (no further process), so that OMP_NUM_THREADS is what the
worker gets. JOB is a JSON file with the configuration and the workload; the result is written to
the path it names, and a line of JSON for each piece of progress goes to the descriptor it names.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from .comparison import Output, Token, render, token_id
from .configuration import MODE, STOCK, Configuration
from .workload import BLOCK, Batch, Request, Workload, continued_after

RECORDER = "vllm_ascend.batch_invariant.check.occupancy.StepRecorder"
# Key of the runs alone, beside the batch sizes.
ALONE = "alone"
CONTINUED = "continued"
# From prctl.h: the signal a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


class EngineError(RuntimeError):
    """The engine cannot do what the job says; the message is one line for the user."""


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, however it ends (Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request
        os.kill(os.getpid(), signal.SIGKILL)


def one_line(error: BaseException) -> str:
    """The first line of an error that says something; pydantic and vLLM write several."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # pydantic: "1 validation error for ModelConfig", then the message with its type in brackets.
    if len(lines) > 1 and "validation error" in lines[0]:
        text = lines[1].split(" [type=")[0].removeprefix("Value error, ")
    else:
        text = lines[0] if lines else ""
    return text or type(error).__name__


def start_engine(
    configuration: Configuration, workload: Workload, cache_bytes_per_token: int | None
) -> Any:
    """vLLM's `LLM`, with room for the workload; settings are those of the guide."""
    import torch
    from vllm import LLM

    if torch.cpu._is_amx_tile_supported():
        # vLLM's kernel for small bf16 weights doesn't ask for this permission and stock vLLM then
        # dies of SIGILL; the control needs it too.
        torch.cpu._init_amx()
    blocks = -(-workload.longest // BLOCK)
    # Room for every request of the largest batch at its longest, the null block of vLLM, and the
    # scheduler's reserve.
    sequences = workload.most_sequences
    tokens = (blocks * sequences + 2 * blocks + 1) * BLOCK
    return LLM(
        model=configuration.model,
        dtype=configuration.dtype,
        # Prompts are token ids, and text is read only where stop words are looked for.
        skip_tokenizer_init=not workload.kinds()["stop_words"],
        enforce_eager=True,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        block_size=BLOCK,
        max_model_len=workload.longest,
        max_num_seqs=sequences,
        # All prompts of the largest batch fit into one step.
        max_num_batched_tokens=workload.longest * sequences,
        kv_cache_memory_bytes=None
        if cache_bytes_per_token is None
        else tokens * cache_bytes_per_token,
        disable_log_stats=True,
        worker_extension_cls=RECORDER,
        seed=0,
    )


def _sampling_parameters(request: Request) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        seed=request.seed,
        top_p=request.top_p,
        top_k=request.top_k,
        logprobs=request.logprobs,
        n=request.n,
        prompt_logprobs=request.prompt_logprobs,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        stop=list(request.stop),
        min_tokens=request.min_tokens,
        ignore_eos=True,
        detokenize=bool(request.stop),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _rendered(tokens: Iterable[int], logprobs: Iterable[Mapping[int, Any]]) -> Output:
    return tuple(
        render(token, found[token].rank, [(other, entry.logprob) for other, entry in found.items()])
        for token, found in zip(tokens, logprobs, strict=True)
    )


def outputs_of(output: Any) -> list[tuple[str, Output]]:
    """What is compared of a finished request (vLLM's RequestOutput), each with a name.

    The first completion has the request's own name; then "NAME, output 2" …, and "NAME's prompt".
    """
    name = output.request_id
    found = []
    for completion in sorted(output.outputs, key=lambda each: int(each.index)):
        label = f"{name}, output {completion.index + 1}" if completion.index else name
        found.append((label, _rendered(completion.token_ids, completion.logprobs)))
    if output.prompt_logprobs is not None:
        # Nothing comes before the first token, so it has no probability.
        rest = zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True)
        tokens, logprobs = zip(*rest, strict=True) if len(output.prompt_logprobs) > 1 else ((), ())
        found.append((f"{name}'s prompt", _rendered(tokens, logprobs)))
    return found


def run_batch(
    engine: Any, requests: Mapping[str, Request], batch: Batch
) -> Iterator[list[tuple[str, Output]]]:
    """Runs one batch through `engine` (vLLM's LLMEngine); yields `outputs_of` each request.

    A request enters the engine in the step of its arrival.
    """
    waiting = list(zip(batch.members, batch.arrivals, strict=True))
    step = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and waiting[0][1] <= step:
            name, _ = waiting.pop(0)
            request = requests[name]
            prompt = {"prompt_token_ids": list(request.prompt)}
            engine.add_request(name, prompt, _sampling_parameters(request))
        for output in engine.step():
            if output.finished:
                yield outputs_of(output)
        step += 1


def continued(workload: Workload, outputs: Mapping[str, Sequence[Token]]) -> dict[str, Request]:
    """The greedy requests with the first half of their output moved into the prompt.

    What was decoded token by token is then computed in prefill; the rest of the output is to be the
    same to the bit. Seeded requests are left out: their generator would begin anew.
    """
    again = {}
    for request in workload.requests:
        half = continued_after(request)
        if half:
            tokens = tuple(token_id(token) for token in outputs[request.name][:half])
            again[request.name] = replace(
                request,
                prompt=request.prompt + tokens,
                max_tokens=request.max_tokens - half,
                prompt_logprobs=None,  # those of another prompt
            )
    return again


def _together(names: Sequence[str], size: int) -> list[Batch]:
    parts = [tuple(names[start : start + size]) for start in range(0, len(names), size)]
    return [Batch(part, (0,) * len(part)) for part in parts]


def describe_engine(llm: Any, configuration: Configuration) -> dict[str, Any]:
    """What the worker runs with. Raises EngineError where that is not the configuration."""
    described: dict[str, Any]
    (described,) = llm.collective_rpc("batch_check_describe")
    if described["threads"] != configuration.threads:
        raise EngineError(
            f"the worker runs {described['threads']} threads, not {configuration.threads}"
        )
    if configuration.subject == STOCK and described["overrides"]:
        raise EngineError("the stock run has overrides: the mode is on without being asked for")
    if configuration.subject == MODE and not described["overrides"]:
        raise EngineError(
            "VLLM_BATCH_INVARIANT=1 overrode nothing: vllm-ascend's platform is not in use"
        )
    return described


def run_job(job: Mapping[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
    """Starts the engine, runs every request alone and every batch. Returns the result document."""
    configuration = Configuration(**job["configuration"])
    workload = Workload.from_json(job["workload"])
    requests = {request.name: request for request in workload.requests}
    began = time.monotonic()
    progress(phase="start")
    llm = start_engine(configuration, workload, job["cache_bytes_per_token"])
    engine = llm.llm_engine
    described = describe_engine(llm, configuration)
    llm.collective_rpc("batch_check_record")
    started = time.monotonic()
    runs: dict[str, list[list[Any]]] = {}
    steps: dict[str, list[Any]] = {}
    seconds = {"start": started - began}
    done = 0

    def run_phase(
        phase: str, batches: Iterable[Batch], requests: Mapping[str, Request] = requests
    ) -> None:
        nonlocal done
        phase_began = time.monotonic()
        runs[phase], steps[phase] = [], []
        for batch in batches:
            for outputs in run_batch(engine, requests, batch):
                runs[phase] += [[name, list(output)] for name, output in outputs]
                done += 1
            steps[phase].append(llm.collective_rpc("batch_check_take")[0])
            progress(phase=phase, done=done)
        seconds[phase] = time.monotonic() - phase_began

    run_phase(ALONE, [Batch((name,), (0,)) for name in requests])
    for size, batches in workload.batches.items():
        run_phase(str(size), batches)
    again = continued(workload, dict(runs[ALONE]))
    run_phase(CONTINUED, _together(list(again), workload.largest_batch), again)
    from vllm_ascend.batch_invariant.loaded import versions

    return {
        "runs": runs,
        "steps": steps,
        "seconds": seconds,
        "dtype": str(llm.model_config.dtype).removeprefix("torch."),
        "versions": versions(),
        **described,
    }


def serve(path: str, run: Callable[[Mapping[str, Any], Callable[..., None]], Any]) -> NoReturn:
    """Runs the job at `path` and ends the process; the counterpart of `engine_process.run_program`.

    `run(job, progress)` returns the result document; an exception becomes an error document.
    """
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    end_with_parent(job["parent"])
    with os.fdopen(job["progress"], "w", buffering=1) as stream:

        def progress(**what: Any) -> None:
            stream.write(json.dumps(what) + "\n")

        try:
            result = run(job, progress)
        except Exception as error:
            traceback.print_exc()
            result = {"error": one_line(error)}
        Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of vLLM and of the operators may still run; nothing of theirs is needed.
    os._exit(1 if "error" in result else 0)


if __name__ == "__main__":
    serve(sys.argv[1], run_job)
