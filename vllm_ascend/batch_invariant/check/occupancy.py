# SPDX-License-Identifier: Apache-2.0
"""How many requests shared each step of the model: serialising is not invariance.

`StepRecorder` is mixed into vLLM's worker (its `worker_extension_cls`), in whatever process that
runs, and notes for every step what the model runner was handed, and how often it ran the model's
forward pass for it: a runner that splits a step into a pass for each request is found out too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One call of the model runner."""

    requests: int
    """Sequences of which at least one token was computed; a request with n outputs is n."""
    first: int
    """Those of them that ran for the first time: in prefill."""
    tokens: int
    passes: int
    """Forward passes of the model that the runner made for it."""

    def as_list(self) -> list[int]:
        return [self.requests, self.first, self.tokens, self.passes]


class StepRecorder:
    """Methods that the check adds to the worker; called by `collective_rpc`."""

    # What they find in the class they are mixed into.
    model_runner: Any
    _batch_check_steps: list[list[int]]

    def batch_check_record(self) -> None:
        """Begins to record; once."""
        import torch

        steps: list[list[int]] = []
        passes = 0
        runner = self.model_runner
        execute: Callable[..., Any] = runner.execute_model

        def execute_model(scheduler_output: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal passes
            passes = 0
            result = execute(scheduler_output, *arguments, **named)
            scheduled = scheduler_output.num_scheduled_tokens
            if scheduled:
                first = len(scheduler_output.scheduled_new_reqs)
                steps.append([len(scheduled), first, sum(scheduled.values()), passes])
            return result

        def count(*_: Any) -> None:
            nonlocal passes
            passes += 1

        model: torch.nn.Module = runner.get_model()
        model.register_forward_pre_hook(count)
        runner.execute_model = execute_model
        self._batch_check_steps = steps

    def batch_check_take(self) -> list[list[int]]:
        """The steps since the last call, as [requests, first, tokens, passes]."""
        taken = list(self._batch_check_steps)
        self._batch_check_steps.clear()
        return taken

    def batch_check_describe(self) -> dict[str, Any]:
        """What this worker runs with: threads, overrides, operators, attention."""
        import torch

        from vllm_ascend.batch_invariant.loaded import describe_operators, installed_overrides

        return {
            "threads": torch.get_num_threads(),
            "worker": f"{type(self).__module__}.{type(self).__qualname__}",
            "overrides": installed_overrides(),
            "operators": describe_operators(),
        }


def steps_from_lists(rows: Sequence[Sequence[int]]) -> tuple[Step, ...]:
    return tuple(Step(*row) for row in rows)


def histogram(steps: Sequence[Step]) -> dict[int, int]:
    """Requests in a step → number of such steps."""
    return dict(sorted(Counter(step.requests for step in steps).items()))


def mixed(steps: Sequence[Step]) -> int:
    """Steps in which some requests were in prefill and others decoded."""
    return sum(0 < step.first < step.requests for step in steps)


def why_not_batched(size: int, steps: Sequence[Step]) -> str | None:
    """None where one submitted batch of `size` sequences was really run as a batch.

    That is: some step held all of its sequences; at least half of the work (a request's token) was
    done in steps that held at least half of them; and no step took more than one forward pass.
    """
    peak = max((step.requests for step in steps), default=0)
    if peak < size:
        return f"no step held more than {peak} of {size} sequences"
    work = sum(step.requests for step in steps)
    shared = sum(step.requests for step in steps if 2 * step.requests >= size)
    if 2 * shared < work:
        return f"only {shared} of {work} steps of a request were taken with half of the batch"
    passes = max(step.passes for step in steps)
    if passes > 1:
        return f"the model ran {passes} times for one step"
    return None
