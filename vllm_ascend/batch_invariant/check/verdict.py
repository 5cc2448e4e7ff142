# SPDX-License-Identifier: Apache-2.0
"""From runs to an answer: rows, the exit code, the table and the JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text_table import table
from .comparison import Comparison, Difference, compare
from .engine_process import EngineResult
from .occupancy import histogram, mixed, why_not_batched

IDENTICAL, DIFFERENT, INCONCLUSIVE, ERROR = 0, 1, 2, 3
EXIT_NAMES = {
    IDENTICAL: "identical",
    DIFFERENT: "different",
    INCONCLUSIVE: "inconclusive",
    ERROR: "error",
}

# Version of the JSON document; changes when a key changes its meaning.
SCHEMA = 1


def threads_phrase(threads: int) -> str:
    return f"{threads} thread" + ("s" if threads > 1 else "")


def batch_comparisons(result: EngineResult) -> list[Comparison]:
    """Each batch size of one engine against that engine's runs alone."""
    threads = threads_phrase(result.configuration.threads)
    return [
        compare(f"batch of {size}, {threads}", result.alone, runs)
        for size, runs in result.batches.items()
    ]


def continued_comparison(result: EngineResult) -> Comparison:
    """What was decoded in the run alone, against the same computed in prefill."""
    rest = {name: result.alone[name][-len(output) :] for name, output in result.continued}
    where = f"continued, {threads_phrase(result.configuration.threads)}"
    return compare(where, rest, result.continued)


def thread_comparison(reference: EngineResult, result: EngineResult) -> Comparison:
    """The runs alone of two engines that differ in the number of threads."""
    a, b = reference.configuration.threads, result.configuration.threads
    return compare(f"alone, {threads_phrase(b)} against {a}", reference.alone, result.alone.items())


def not_batched(result: EngineResult) -> str | None:
    """The first batch that was not really run as one, in words; None where all were."""
    for size, batches in result.steps.items():
        if size == 1:
            continue
        for number, steps in enumerate(batches):
            submitted = result.workload.batches[size][number]
            why = why_not_batched(result.workload.sequences(submitted), steps)
            if why is not None:
                return f"batch {number} of size {size} was not run as a batch: {why}"
    return None


@dataclass(frozen=True)
class Row:
    """One engine start of the subject, compared."""

    result: EngineResult
    comparisons: tuple[Comparison, ...]
    not_batched: str | None

    @property
    def compared(self) -> int:
        return sum(c.compared for c in self.comparisons)

    @property
    def identical(self) -> int:
        return sum(c.identical for c in self.comparisons)

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(d for c in self.comparisons for d in c.differences)

    def as_json(self) -> dict[str, Any]:
        configuration = self.result.configuration
        steps = [
            step for size, bs in self.result.steps.items() if size > 1 for b in bs for step in b
        ]
        first = next(iter(self.differences), None)
        return {
            "model": configuration.model,
            "dtype": configuration.dtype,
            "threads": configuration.threads,
            "subject": configuration.subject,
            "requests": self.result.workload.kinds(),
            "compared": self.compared,
            "identical": self.identical,
            "by_run": [
                {
                    "run": c.where,
                    "compared": c.compared,
                    "identical": c.identical,
                    "differing": [difference.request for difference in c.differences],
                }
                for c in self.comparisons
            ],
            "first_difference": None if first is None else first.describe(),
            "steps": {
                str(size): {
                    "requests_in_a_step": {
                        str(k): v for k, v in histogram([s for b in bs for s in b]).items()
                    },
                    "mixed_steps": mixed([s for b in bs for s in b]),
                }
                for size, bs in self.result.steps.items()
            },
            "most_requests_in_a_step": max((s.requests for s in steps), default=1),
            "not_batched": self.not_batched,
            "overrides": list(self.result.overrides),
            "worker": self.result.worker,
            "seconds": {k: round(v, 2) for k, v in self.result.seconds.items()},
        }


def make_row(result: EngineResult, reference: EngineResult | None) -> Row:
    """Compares one engine's runs; `reference` is the same model at another number of threads."""
    comparisons = [*batch_comparisons(result), continued_comparison(result)]
    if reference is not None:
        comparisons.append(thread_comparison(reference, result))
    return Row(result, tuple(comparisons), not_batched(result))


@dataclass(frozen=True)
class ControlTry:
    """One control that was run: how many requests differed from the run alone."""

    subject: str
    threads: int
    compared: int
    differing: int
    error: str | None = None
    comparisons: tuple[Comparison, ...] = ()

    def describe(self) -> str:
        if self.error is not None:
            return f"{self.subject}: did not run ({self.error})"
        return (
            f"{self.subject}, {threads_phrase(self.threads)}: "
            f"{self.differing} of {self.compared} differ"
        )


@dataclass(frozen=True)
class Control:
    """The controls of one model and dtype, in the order in which they were tried."""

    model: str
    dtype: str
    tries: tuple[ControlTry, ...]

    @property
    def differs(self) -> bool:
        return any(t.differing for t in self.tries)

    @property
    def used(self) -> ControlTry | None:
        """The one that differed; None where none did."""
        return next((t for t in self.tries if t.differing), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dtype": self.dtype,
            "differs": self.differs,
            "tries": [
                {
                    "subject": t.subject,
                    "threads": t.threads,
                    "compared": t.compared,
                    "differing": t.differing,
                    "error": t.error,
                }
                for t in self.tries
            ],
        }


def control_try(result: EngineResult) -> ControlTry:
    """How many requests of a control run differ from that run's own requests alone."""
    comparisons = batch_comparisons(result)
    return ControlTry(
        result.configuration.subject,
        result.configuration.threads,
        sum(c.compared for c in comparisons),
        sum(len(c.differences) for c in comparisons),
        comparisons=tuple(comparisons),
    )


@dataclass
class Verdict:
    """All rows and controls of a check."""

    rows: list[Row] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def compared(self) -> int:
        return sum(row.compared for row in self.rows)

    @property
    def identical(self) -> int:
        return sum(row.identical for row in self.rows)

    @property
    def control_differs(self) -> bool:
        return bool(self.controls) and all(control.differs for control in self.controls)

    @property
    def exit_code(self) -> int:
        if any(row.differences or row.not_batched for row in self.rows):
            return DIFFERENT
        if not self.compared or not self.control_differs:
            return INCONCLUSIVE
        return IDENTICAL

    def reasons(self) -> Iterable[str]:
        """One line for each thing that keeps the answer from being `identical`."""
        for row in self.rows:
            label = row.result.configuration.label()
            if row.not_batched:
                yield f"{label}: {row.not_batched}"
            if row.differences:
                count = row.compared - row.identical
                first = row.differences[0].describe()
                yield f"{label}: {count} of {row.compared} differ, first {first}"
        if not self.compared:
            yield "nothing was compared: give --batches with a size above 1, or several --threads"
        for control in self.controls:
            if not control.differs:
                tried = "; ".join(t.describe() for t in control.tries) or "none was tried"
                yield f"{control.model} {control.dtype}: no control differs: {tried}"

    def as_json(self) -> dict[str, Any]:
        results = [row.result for row in self.rows]
        operators: Mapping[str, Any] | None = next(
            (r.operators for r in results if r.operators), None
        )
        return {
            "schema": SCHEMA,
            "verdict": EXIT_NAMES[self.exit_code],
            "exit_code": self.exit_code,
            "comparisons": self.compared,
            "identical": self.identical,
            "control_differs": self.control_differs,
            "reasons": list(self.reasons()),
            "configurations": [row.as_json() for row in self.rows],
            "controls": [control.as_json() for control in self.controls],
            "operators": operators,
            "versions": dict(results[0].versions) if results else {},
            "seconds": round(self.seconds, 1),
        }

    def as_table(self) -> str:
        """The rows, each with the control of its model and dtype."""
        controls = {(c.model, c.dtype): c for c in self.controls}
        rows: list[Sequence[object]] = []
        for row in self.rows:
            configuration = row.result.configuration
            control = controls.get((configuration.model, configuration.dtype))
            used = None if control is None else control.used
            sizes = [size for size in row.result.steps if size > 1]
            peaks = [
                str(max(step.requests for batch in row.result.steps[size] for step in batch))
                for size in sizes
            ]
            rows.append(
                (
                    configuration.model.rstrip("/").rsplit("/", 1)[-1],
                    configuration.dtype,
                    configuration.threads,
                    row.compared,
                    row.compared - row.identical,
                    ",".join(map(str, sizes)) or "-",
                    ",".join(peaks) or "-",
                    "none differs" if used is None else used.describe(),
                    round(sum(row.result.seconds.values()), 1),
                )
            )
        header = (
            "model",
            "dtype",
            "threads",
            "compared",
            "differ",
            "batches",
            "in a step",
            "control",
            "seconds",
        )
        return table(header, rows)
