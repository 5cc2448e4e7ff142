# SPDX-License-Identifier: Apache-2.0
"""Engine results made on the spot: what an engine would return, changed where a test says so."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from vllm_ascend.batch_invariant.check.comparison import Output, render
from vllm_ascend.batch_invariant.check.configuration import STOCK, Configuration
from vllm_ascend.batch_invariant.check.engine_process import EngineResult
from vllm_ascend.batch_invariant.check.occupancy import Step
from vllm_ascend.batch_invariant.check.workload import Workload, continued_after

# What a row computes, given the request and how many rows shared its step.
Arithmetic = Callable[[str, int], float]


def invariant(request: str, rows: int) -> float:
    return -0.25 * len(request)


def depends_on_the_batch(request: str, rows: int) -> float:
    return invariant(request, rows) - (2.0**-20 if rows > 1 else 0.0)


def output(value: float, length: int) -> Output:
    return tuple(render(token, 1, [(token, value), (7, value - 1)]) for token in range(length))


def steps_of(members: int, length: int, at_once: int) -> tuple[Step, ...]:
    steps: list[Step] = []
    for start in range(0, members, at_once):
        together = min(at_once, members - start)
        steps.append(Step(together, together, 5 * together, 1))
        steps += [Step(together, 0, together, 1)] * (length - 1)
    return tuple(steps)


class SyntheticEngines:
    """Stands for `run_engine`: the subject and the controls compute with the given arithmetic."""

    def __init__(
        self,
        subject: Arithmetic = invariant,
        control: Arithmetic = depends_on_the_batch,
        at_once: int | None = None,
    ) -> None:
        self.started: list[Configuration] = []
        self._subject = subject
        self._control = control
        self._at_once = at_once

    def __call__(
        self,
        configuration: Configuration,
        workload: Workload,
        cache_bytes_per_token: int | None,
        progress: Callable[[str, int], None],
    ) -> EngineResult:
        self.started.append(configuration)
        progress("start", 0)
        compute = self._subject if configuration.subject == "mode" else self._control
        length = workload.requests[0].max_tokens
        alone = {r.name: output(compute(r.name, 1), length) for r in workload.requests}
        batches = {}
        steps = {1: tuple(steps_of(r.n, length, r.n) for r in workload.requests)}
        done = len(alone)
        for size, made in workload.batches.items():
            rows = [name for batch in made for name in batch.members]
            batches[size] = tuple((name, output(compute(name, size), length)) for name in rows)
            sizes = [workload.sequences(batch) for batch in made]
            steps[size] = tuple(steps_of(n, length, self._at_once or n) for n in sizes)
            done += len(rows)
            progress(str(size), done)
        overrides = () if configuration.subject == STOCK else ("vllm::linear",)
        return EngineResult(
            configuration=configuration,
            workload=workload,
            alone=alone,
            batches=batches,
            continued=tuple(
                (r.name, output(compute(r.name, 1), length)[length // 2 :])
                for r in workload.requests
                if continued_after(r)
            ),
            steps=steps,
            seconds={"start": 1.0, "alone": 2.0},
            overrides=overrides,
            operators={"isa": "portable"} if overrides else None,
            versions={"vllm": "0.32.0+cpu"},
            worker="worker",
            dtype=configuration.dtype,
        )


def options(**changed: object) -> argparse.Namespace:
    """Arguments of `check` as the command line gives them."""
    values: dict[str, object] = {
        "model": [],
        "prompts": 4,
        "batches": "1,2,8",
        "dtype": "auto",
        "threads": "1,2",
        "max_tokens": 6,
        "seed": 0,
        "json": None,
        "plot": None,
        "subject": "mode",
        "controls": None,
    }
    return argparse.Namespace(**(values | changed))
