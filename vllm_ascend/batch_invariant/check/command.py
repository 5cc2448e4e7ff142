# SPDX-License-Identifier: Apache-2.0
"""The command `check`: which engines run, in which order, and what is printed."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..atomic_file import check_writable, write_json
from ..progress import Progress
from ..termination import terminable
from . import plot
from .configuration import (
    DTYPES,
    MODE,
    STOCK,
    WITHOUT,
    Configuration,
    ConfigurationError,
    ModelFacts,
    check_subject,
    distinct,
    number_list,
    read_model,
    resolve_dtype,
)
from .engine_process import EngineFailure, EngineResult, run_engine
from .verdict import ERROR, EXIT_NAMES, Control, ControlTry, Verdict, control_try, make_row
from .workload import Workload, make_workload

DESCRIPTION = """\
Is a model's output independent of the batch, to the bit?

Every prompt is run alone and inside shuffled batches, greedily and with a seeded sampler, in the
real vLLM with VLLM_BATCH_INVARIANT=1, at each number of threads. Token ids and the float32 bits of
logprobs are compared with the run alone, and the runs alone across numbers of threads. Greedy
requests are continued from the middle of their output, so that what was decoded is computed in
prefill, and compared too. Among the requests are some with penalties, stop words, two outputs,
top-k, top-p and logprobs of the prompt. A control has to differ on the same inputs: stock vLLM or,
where that cannot start or happens not to differ, the mode with one named override left out.
"""

EPILOG = f"""\
exit codes:
  0  identical: everything compared is the same to the bit, and each control differs
  1  different: an output differs (the first is named), or the batches were not really batched
  2  inconclusive: no difference, but no control differed either, or nothing was compared
  3  error: the check could not be run; one line says why

columns of the table:
  batches              how many requests were given at once, and ...
  in a step            ... the most sequences that one step held; a request for two outputs is two

keys of --json:
  schema               of this document
  verdict, exit_code   as above
  comparisons          outputs compared with those of the same request alone, over all rows
  identical            those of them that are the same to the bit
  control_differs      whether a control differed for every model and dtype
  reasons              lines that say why the verdict is not `identical`
  configurations       a row for each engine of the subject: model, dtype, threads, subject,
                       requests (how many of each kind), compared, identical, by_run (with the names
                       of what differs), first_difference, steps (per batch size, how many steps
                       held how many sequences, and how many held prefill and decode),
                       most_requests_in_a_step, not_batched, overrides, worker, seconds
  controls             for each model and dtype: differs, and the tries with subject, threads,
                       compared, differing, error
  operators            the operator library: path, version, isa, abi
  versions             of vllm, vllm-ascend, batch_invariant_ops, torch
  seconds              the whole check

subjects (--subject, and the list of --controls):
  {MODE}            VLLM_BATCH_INVARIANT=1
  {STOCK}           vLLM as it is
  {WITHOUT}NAME    the mode without the override NAME (see `report`); NAME+NAME for several

example:
  python -m vllm_ascend.batch_invariant make-model qwen3 /tmp/qwen3
  python -m vllm_ascend.batch_invariant check --model /tmp/qwen3 --dtype bfloat16,float32
"""

# So many prompts are about a gigabyte of logprobs in this process and another in the engine's.
MOST_PROMPTS = 4096
# No machine has more processors, and OpenMP dies of absurd numbers without a word.
MOST_THREADS = 1024
# The control needs one difference, so it runs this many prompts at most.
CONTROL_PROMPTS = 8
# Overrides whose absence is tried where stock does not differ: where most of the arithmetic is.
CONTROL_OVERRIDES = ("vllm::linear", "vllm::attention", "vllm::moe")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="DIR",
        help="a model's directory, or its name in the Hugging Face cache; may be given several "
        "times",
    )
    parser.add_argument(
        "--prompts",
        type=int,
        default=32,
        metavar="N",
        help=f"at most {MOST_PROMPTS} (default: 32)",
    )
    parser.add_argument(
        "--batches",
        default="1,2,8,32",
        metavar="SIZES",
        help="batch sizes; 1 is the run alone, which is always made (default: 1,2,8,32)",
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        metavar="D",
        help=f"{', '.join(DTYPES)}, or several separated by commas (default: the model's)",
    )
    parser.add_argument(
        "--threads",
        default="1,2",
        metavar="NUMBERS",
        help="numbers of threads to run with and compare (default: 1,2)",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=24, metavar="N", help="tokens a request (default: 24)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of prompts and shuffles (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help=f"draw the results here too ({', '.join(plot.FORMATS)}); needs matplotlib",
    )
    parser.add_argument(
        "--subject", default=MODE, help="what is checked; see below (default: the mode)"
    )
    parser.add_argument(
        "--controls",
        metavar="LIST",
        help="subjects to try as controls, separated by commas (default: stock with the numbers "
        f"of --threads, then {WITHOUT} each of {', '.join(CONTROL_OVERRIDES)})",
    )


# Runs one configuration's workload; the last argument is told (phase, requests done).
Runner = Callable[[Configuration, Workload, int | None, Callable[[str, int], None]], EngineResult]


class Check:
    """The engines of one check and what has been found so far."""

    def __init__(
        self, options: argparse.Namespace, progress: Progress, run: Runner = run_engine
    ) -> None:
        """Reads the arguments. Raises ConfigurationError in one line where they cannot be run."""
        self._progress = progress
        self._run = run
        self._threads = number_list("--threads", options.threads, MOST_THREADS)
        self._batches = number_list("--batches", options.batches, 2 * MOST_PROMPTS)
        if options.prompts < 1:
            raise ConfigurationError(f"--prompts {options.prompts}: expected 1 or more")
        if options.prompts > MOST_PROMPTS:
            raise ConfigurationError(
                f"--prompts {options.prompts}: expected at most {MOST_PROMPTS}, because the bits "
                "of every logprob are kept until all are compared, about 200 KB a prompt"
            )
        if options.max_tokens < 1:
            raise ConfigurationError(f"--max-tokens {options.max_tokens}: expected 1 or more")
        self._options = options
        self._subject: str = options.subject
        self._controls: tuple[str, ...] | None = None
        if options.controls is not None:
            self._controls = distinct(options.controls.split(","))
        for subject in (self._subject, *(self._controls or ())):
            check_subject(subject)
        if options.json is not None:
            try:
                check_writable(options.json)
            except OSError as error:
                raise ConfigurationError(f"--json {error}") from error
        if options.plot is not None:
            plot.check_can_draw(options.plot)
        self._cases: list[tuple[str, str, ModelFacts]] = []
        for model in distinct(options.model):
            facts = read_model(model)
            dtypes = [resolve_dtype(dtype, facts) for dtype in options.dtype.split(",")]
            self._cases += [(model, dtype, facts) for dtype in distinct(dtypes)]
            self._workload(facts)  # its errors now, not after the first engine
        self._of = len(self._cases) * (len(self._threads) + 1)
        self._number = 0
        self.verdict = Verdict()

    def _workload(self, facts: ModelFacts, control: bool = False) -> Workload:
        prompts = min(self._options.prompts, CONTROL_PROMPTS) if control else self._options.prompts
        batches = self._batches
        if control:
            # The largest that the control's requests fill: where most differs.
            wanted = max(self._batches) if max(self._batches) > 1 else 2 * prompts
            batches = (min(wanted, 2 * prompts),)
        return make_workload(
            prompts=prompts,
            batches=batches,
            max_tokens=self._options.max_tokens,
            vocab_size=facts.vocab_size,
            max_positions=facts.max_positions,
            stop_words=facts.has_tokenizer,
            seed=self._options.seed,
        )

    def _engine(
        self, configuration: Configuration, workload: Workload, facts: ModelFacts
    ) -> EngineResult:
        submissions = workload.submissions()
        began = time.monotonic()
        head = f"[{self._number}/{self._of}] {configuration.label()}"
        self._progress.show(f"{head}: starting", now=True)

        def report(phase: str, done: int) -> None:
            if phase == "start":
                waited = time.monotonic() - began
                self._progress.show(f"{head}: starting, {waited:.0f} s")
            else:
                where = f"batches of {phase}" if phase.isdigit() else phase
                self._progress.show(f"{head}: {where}, {done} of {submissions} requests")

        result = self._run(configuration, workload, facts.cache_bytes_per_token, report)
        took = sum(result.seconds.values())
        self._progress.show(f"{head}: {submissions} requests in {took:.1f} s", now=True)
        return result

    def _control(self, model: str, dtype: str, facts: ModelFacts) -> Control:
        workload = self._workload(facts, control=True)
        subjects = self._controls
        if subjects is None:
            subjects = (STOCK, *(WITHOUT + name for name in CONTROL_OVERRIDES))
        tries: list[ControlTry] = []
        for subject in subjects:
            for threads in self._threads if subject == STOCK else self._threads[-1:]:
                configuration = Configuration(model, dtype, threads, subject)
                try:
                    tries.append(control_try(self._engine(configuration, workload, facts)))
                except EngineFailure as error:
                    self._progress.show(str(error), now=True)
                    tries.append(ControlTry(subject, threads, 0, 0, str(error)))
                if tries[-1].differing:
                    return Control(model, dtype, tuple(tries))
        return Control(model, dtype, tuple(tries))

    def run(self) -> Verdict:
        """Runs all engines. Raises EngineFailure where one of the subject's does not run."""
        began = time.monotonic()
        for model, dtype, facts in self._cases:
            workload = self._workload(facts)
            reference: EngineResult | None = None
            for threads in self._threads:
                self._number += 1
                configuration = Configuration(model, dtype, threads, self._subject)
                result = self._engine(configuration, workload, facts)
                self.verdict.rows.append(make_row(result, reference))
                reference = reference or replace(result, batches={})
            self._number += 1
            self.verdict.controls.append(self._control(model, dtype, facts))
        self.verdict.seconds = time.monotonic() - began
        return self.verdict


def run(options: argparse.Namespace, execute: Runner = run_engine) -> int:
    """Runs the check and prints it; returns the exit code."""
    progress = Progress(sys.stderr)
    try:
        with terminable():
            check = Check(options, progress, execute)
            verdict = check.run()
        progress.clear()
        if options.json is not None:
            write_json(options.json, verdict.as_json())
        if options.plot is not None:
            plot.draw(verdict, options.plot)
    except KeyboardInterrupt:
        progress.clear()
        print("check: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except (ConfigurationError, OSError) as error:
        progress.clear()
        print(f"check: {error}", file=sys.stderr)
        return ERROR
    print(verdict.as_table())
    print()
    for reason in verdict.reasons():
        print(f"check: {reason}")
    controls = sum(control.differs for control in verdict.controls)
    print(
        f"check: {EXIT_NAMES[verdict.exit_code]}: {verdict.identical} of {verdict.compared} "
        f"comparisons identical, {controls} of {len(verdict.controls)} controls differ, "
        f"{verdict.seconds:.0f} s"
    )
    return verdict.exit_code
