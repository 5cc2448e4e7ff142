# SPDX-License-Identifier: Apache-2.0
"""Runs a model with every operator call traced: `python -m …report.engine JOB`.

The model runs a few requests alone and a batch of them, so that the trace has prefill, decode, both
in one step, one row and several, greedy and seeded sampling, top-k, top-p, penalties, stop words,
several outputs of one prompt and logprobs of a prompt.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..check.configuration import Configuration
from ..check.engine import describe_engine, run_batch, serve, start_engine
from ..check.workload import Batch, Workload
from .classify import Finding, judge, made_of_calls
from .trace import Call, OperatorTrace

# Phases: the forward pass by what its step holds, the sampler, and what lies around both.
FORWARD, SAMPLING, AROUND = "forward", "sampling", "around"


def follow_phases(runner: Any, trace: OperatorTrace) -> None:
    """Keeps `trace.phase` as vLLM's model runner goes from one to the next."""
    trace.phase = AROUND
    model_forward = runner.model.forward
    sample = runner.sample_tokens

    def in_phase(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            before, trace.phase = trace.phase, phase
            try:
                return function(*arguments, **named)
            finally:
                trace.phase = before

        return call

    runner.model.forward = in_phase(FORWARD, model_forward)
    runner.sample_tokens = in_phase(SAMPLING, sample)


def compiled_functions() -> list[str]:
    """Functions that torch.compile turned into code whose kernels pass no dispatcher."""
    from torch._dynamo.utils import get_compilation_metrics

    return sorted({f"{m.co_name} ({m.co_filename})" for m in get_compilation_metrics()})


def run_job(job: Mapping[str, Any], progress: Callable[..., None]) -> dict[str, Any]:
    """Returns findings with their counts and phases, the overrides, the library and versions."""
    from vllm_ascend.batch_invariant.loaded import versions
    from vllm_ascend.batch_invariant.overrides import installed

    configuration = Configuration(**job["configuration"])
    workload = Workload.from_json(job["workload"])
    requests = {request.name: request for request in workload.requests}
    progress(phase="start")
    llm = start_engine(configuration, workload, job["cache_bytes_per_token"])
    described = describe_engine(llm, configuration)
    engine = llm.llm_engine
    overrides = {o.target: o.by for o in installed() if o.dispatch_key is not None}

    counts: Counter[tuple[Finding, str]] = Counter()
    operators: Counter[str] = Counter()

    def consume(phase: str, call: Call) -> None:
        operators[call.operator] += 1
        operators.update(inner.operator for inner in call.below())
        counts.update((finding, phase) for finding in judge(call, overrides))

    trace = OperatorTrace(
        job["device_key"], lambda operator: made_of_calls(operator, overrides), consume
    )
    batches = [*(Batch((name,), (0,)) for name in requests), *sum(workload.batches.values(), ())]

    def run_all(phase: str) -> None:
        done = 0
        for batch in batches:
            done += sum(1 for _ in run_batch(engine, requests, batch))
            progress(phase=phase, done=done)

    # Once as it always runs: torch.compile does nothing while a trace is on.
    run_all("untraced")
    compiled = compiled_functions()
    llm.collective_rpc(lambda worker: follow_phases(worker.model_runner, trace))
    with trace:
        run_all("traced")
    findings: dict[Finding, dict[str, int]] = {}
    for (finding, phase), number in counts.items():
        findings.setdefault(finding, {})[phase] = number
    return {
        "findings": [
            {
                "operator": finding.operator,
                "class": finding.kind,
                "by": list(finding.by),
                "reason": finding.reason,
                "calls": sum(phases.values()),
                "phases": phases,
            }
            for finding, phases in findings.items()
        ],
        "called": dict(operators),
        "compiled": compiled,
        "versions": versions(),
        **described,
    }


if __name__ == "__main__":
    serve(sys.argv[1], run_job)
