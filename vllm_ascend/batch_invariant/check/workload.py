# SPDX-License-Identifier: Apache-2.0
"""What is asked of the engine: prompts, sampling parameters, and who shares a batch with whom.

Every prompt is asked twice, greedily and with a seeded sampler at temperature 0.7. Prompts are
random token ids, so any model will do and their lengths are exact: some end just before, at and
after a KV block of 128 tokens, some cross it while they decode.

Neighbours differ in everything that could leak from one row to another: length, temperature, seed,
top-p, top-k, penalties, stop words, several outputs for one prompt, and how many logprobs they
want, of what is generated and of the prompt.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .configuration import ConfigurationError

BLOCK = 128
# Lengths that matter, in the order in which they are used up: around one block, around two, the
# shortest. Further prompts have random lengths up to LONGEST.
LENGTHS = (BLOCK - 8, 1, BLOCK, 40, BLOCK + 1, 2 * BLOCK - 1, 3, BLOCK - 1, 2 * BLOCK, 17)
LONGEST = 2 * BLOCK + 40

TEMPERATURE = 0.7
# vLLM's own limit for a request unless the server raises it.
LOGPROBS_GREEDY = 20
LOGPROBS_SEEDED = 5

# Logprobs of each prompt token, for the requests that want those.
PROMPT_LOGPROBS = 5
PENALTIES = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.2}
# Two letters that a text of any language model has now and then, not in each token.
STOP = ("q", "z")

# A request of a batch joins this many steps after its first members at most, so that steps occur
# in which some requests are in prefill while others decode.
LATEST_ARRIVAL = 3


@dataclass(frozen=True)
class Request:
    """One prompt with its sampling parameters; the names of vLLM's SamplingParams."""

    name: str
    prompt: tuple[int, ...]
    max_tokens: int
    logprobs: int
    temperature: float = 0.0
    seed: int | None = None
    top_p: float = 1.0
    top_k: int = 0
    n: int = 1
    prompt_logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    min_tokens: int = 0

    @property
    def penalised(self) -> bool:
        """Whether what was generated already changes what comes next."""
        neutral = (0.0, 0.0, 1.0)
        return neutral != (self.presence_penalty, self.frequency_penalty, self.repetition_penalty)


@dataclass(frozen=True)
class Batch:
    """Requests that are submitted together, with the step in which each arrives."""

    members: tuple[str, ...]
    arrivals: tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """Requests by name, and for each batch size the batches to run."""

    requests: tuple[Request, ...]
    batches: Mapping[int, tuple[Batch, ...]]

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return max(len(r.prompt) + r.max_tokens for r in self.requests)

    @property
    def largest_batch(self) -> int:
        return max(self.batches, default=1)

    def sequences(self, batch: Batch) -> int:
        """Sequences that the batch makes: a request with n outputs is n of them."""
        wanted = {request.name: request.n for request in self.requests}
        return sum(wanted[name] for name in batch.members)

    @property
    def most_sequences(self) -> int:
        """Of the batch with the most, or of a request alone."""
        together = (self.sequences(batch) for made in self.batches.values() for batch in made)
        return max(max(r.n for r in self.requests), *together, 1)

    def kinds(self) -> dict[str, int]:
        """How many requests there are of each kind; one may be of several."""
        requests = self.requests
        return {
            "greedy": sum(r.temperature == 0 for r in requests),
            "seeded": sum(r.temperature > 0 for r in requests),
            "top_p": sum(r.top_p < 1 for r in requests),
            "top_k": sum(r.top_k > 0 for r in requests),
            "penalties": sum(r.penalised for r in requests),
            "stop_words": sum(bool(r.stop) for r in requests),
            "several_outputs": sum(r.n > 1 for r in requests),
            "prompt_logprobs": sum(r.prompt_logprobs is not None for r in requests),
        }

    def submissions(self) -> int:
        """How many requests the engine is given: alone, in batches, and continued."""
        shared = sum(len(b.members) for batches in self.batches.values() for b in batches)
        again = sum(1 for r in self.requests if continued_after(r))
        return len(self.requests) + shared + again

    def as_json(self) -> dict[str, Any]:
        return {
            "requests": [asdict(request) for request in self.requests],
            "batches": {str(n): [asdict(b) for b in bs] for n, bs in self.batches.items()},
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Workload:
        requests = tuple(
            Request(**{**fields, "prompt": tuple(fields["prompt"]), "stop": tuple(fields["stop"])})
            for fields in document["requests"]
        )
        batches = {
            int(size): tuple(
                Batch(tuple(batch["members"]), tuple(batch["arrivals"])) for batch in batches
            )
            for size, batches in document["batches"].items()
        }
        return Workload(requests, batches)


def continued_after(request: Request) -> int:
    """How many tokens of its output a request gets as prompt when it is continued; 0: it is not.

    What was generated counts otherwise than a prompt for penalties and stop words, and a seeded
    generator would begin anew.
    """
    if request.temperature > 0 or request.penalised or request.stop or request.n > 1:
        return 0
    return request.max_tokens // 2


def _particulars(greedy: bool, index: int, max_tokens: int, stop_words: bool) -> dict[str, Any]:
    """What the request of prompt `index` wants beside tokens: each kind within three prompts."""
    prompt_logprobs = {"prompt_logprobs": PROMPT_LOGPROBS}
    stop: dict[str, Any] = {}
    if stop_words:
        # Nobody leaves a batch before the last has joined it.
        stop = {"stop": STOP, "min_tokens": min(LATEST_ARRIVAL + 1, max_tokens)}
    if greedy:
        return (prompt_logprobs, {}, PENALTIES, stop)[index % 4]
    return (
        {"n": 2},
        {"top_p": 0.9, **stop},
        {"top_k": 50, **PENALTIES},
        prompt_logprobs,
    )[index % 4]


def _lengths(count: int, longest: int, rng: random.Random) -> list[int]:
    lengths = [*LENGTHS[:count], *(rng.randint(2, LONGEST) for _ in range(count - len(LENGTHS)))]
    return [min(length, longest) for length in lengths]


def _batches(
    names: Sequence[str], size: int, max_tokens: int, rng: random.Random
) -> tuple[Batch, ...]:
    order = list(names)
    rng.shuffle(order)
    # The last batch is filled up with requests that have had their turn: each batch is full.
    order += order[: -len(order) % size]
    latest = min(LATEST_ARRIVAL, max_tokens - 1)
    made = []
    for start in range(0, len(order), size):
        arrivals = sorted(rng.choice((0, 0, rng.randint(0, latest))) for _ in range(size))
        arrivals[0] = 0
        if latest:
            arrivals[-1] = max(arrivals[-1], 1)
        made.append(Batch(tuple(order[start : start + size]), tuple(arrivals)))
    return tuple(made)


def make_workload(
    *,
    prompts: int,
    batches: Sequence[int],
    max_tokens: int,
    vocab_size: int,
    max_positions: int,
    stop_words: bool = True,
    seed: int = 0,
) -> Workload:
    """`prompts` prompts, greedy and seeded, and shuffled batches of each size above 1.

    `stop_words` needs a model that has a tokenizer. The same arguments give the same workload.
    Raises ConfigurationError where the model is too short for `max_tokens` or a batch larger than
    the number of requests.
    """
    longest = max_positions - max_tokens
    if longest < 1:
        raise ConfigurationError(
            f"--max-tokens {max_tokens}: the model has {max_positions} positions; give less"
        )
    if max(batches, default=1) > 2 * prompts:
        needed = -(-max(batches) // 2)
        raise ConfigurationError(
            f"--batches {max(batches)}: {prompts} prompts make {2 * prompts} requests, not enough "
            f"for one batch; give --prompts {needed} or more"
        )
    rng = random.Random(f"prompts {seed}")
    requests: list[Request] = []
    for index, length in enumerate(_lengths(prompts, longest, rng)):
        prompt = tuple(rng.randrange(vocab_size) for _ in range(length))
        wants = _particulars(True, index, max_tokens, stop_words)
        requests.append(Request(f"greedy{index}", prompt, max_tokens, LOGPROBS_GREEDY, **wants))
        requests.append(
            Request(
                f"seeded{index}",
                prompt,
                max_tokens,
                LOGPROBS_SEEDED,
                temperature=TEMPERATURE,
                seed=1000 + index,
                **_particulars(False, index, max_tokens, stop_words),
            )
        )
    names = [request.name for request in requests]
    made = {
        size: _batches(names, size, max_tokens, random.Random(f"batches {seed} {size}"))
        for size in batches
        if size > 1
    }
    return Workload(tuple(requests), made)
