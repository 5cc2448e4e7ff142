# SPDX-License-Identifier: Apache-2.0
"""The workload covers what can go wrong, and is the same each time."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_ascend.batch_invariant.check.configuration import ConfigurationError
from vllm_ascend.batch_invariant.check.engine import continued, outputs_of
from vllm_ascend.batch_invariant.check.workload import (
    BLOCK,
    Workload,
    continued_after,
    make_workload,
)


def workload(prompts: int = 32, batches: tuple[int, ...] = (1, 2, 8, 32), **other: Any) -> Workload:
    values: dict[str, Any] = {"max_tokens": 24, "vocab_size": 2048, "max_positions": 4096} | other
    return make_workload(prompts=prompts, batches=batches, **values)


def test_every_request_is_in_a_batch_of_each_size() -> None:
    made = workload()
    names = sorted(request.name for request in made.requests)
    assert len(names) == 64
    assert sorted(made.batches) == [2, 8, 32]
    for size, batches in made.batches.items():
        assert sorted(name for batch in batches for name in batch.members) == names
        assert {len(batch.members) for batch in batches} == {size}


def test_a_batch_that_requests_do_not_fill_is_filled_up() -> None:
    made = workload(prompts=5, batches=(4,))
    members = [name for batch in made.batches[4] for name in batch.members]
    assert len(members) == 12 and set(members) == {r.name for r in made.requests}
    assert all(len(set(batch.members)) == 4 for batch in made.batches[4])


def test_batches_are_shuffled_by_the_seed_alone() -> None:
    assert workload() == workload()
    assert workload(seed=1).batches != workload().batches
    order = [name for batch in workload().batches[8] for name in batch.members]
    assert order != [request.name for request in workload().requests]


def test_prompts_end_around_blocks_and_decode_across_them() -> None:
    lengths = {len(request.prompt) for request in workload().requests}
    assert {1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK} <= lengths
    assert any(n < BLOCK < n + 23 for n in lengths)
    assert len(lengths) > 16


def test_greedy_and_seeded_requests_share_batches() -> None:
    made = workload()
    seeds = [r.seed for r in made.requests if r.temperature > 0]
    assert len(seeds) == len(set(seeds)) == 32
    assert {r.temperature for r in made.requests} == {0.0, 0.7}
    (batch, *_) = made.batches[32]
    assert {name.rstrip("0123456789") for name in batch.members} == {"greedy", "seeded"}


def test_three_prompts_ask_for_everything_that_a_request_can_ask() -> None:
    kinds = workload(prompts=3, batches=(2,)).kinds()
    assert all(kinds.values()), kinds
    assert not workload(prompts=3, batches=(2,), stop_words=False).kinds()["stop_words"]


def test_a_request_with_two_outputs_is_two_sequences_of_its_batch() -> None:
    made = workload(prompts=4, batches=(8,))
    (batch,) = made.batches[8]
    assert made.sequences(batch) == made.most_sequences == 9
    assert workload(prompts=4, batches=(1,)).most_sequences == 2


def test_nobody_stops_before_the_last_has_joined() -> None:
    made = workload()
    latest = max(a for batches in made.batches.values() for b in batches for a in b.arrivals)
    assert all(r.min_tokens > latest for r in made.requests if r.stop)


def test_what_a_request_gave_is_compared_output_by_output_and_the_prompt_too() -> None:
    def entry(value: float) -> SimpleNamespace:
        return SimpleNamespace(logprob=value, rank=1)

    def completion(index: int) -> SimpleNamespace:
        return SimpleNamespace(index=index, token_ids=[5], logprobs=[{5: entry(-1.0 - index)}])

    finished: Any = SimpleNamespace(
        request_id="seeded0",
        outputs=[completion(1), completion(0)],
        prompt_token_ids=[7, 8],
        prompt_logprobs=[None, {8: entry(-4.0), 9: entry(-0.5)}],
    )
    assert outputs_of(finished) == [
        ("seeded0", ("5 1 5:bf800000",)),
        ("seeded0, output 2", ("5 1 5:c0000000",)),
        ("seeded0's prompt", ("8 1 8:c0800000 9:bf000000",)),
    ]
    finished.prompt_token_ids, finished.prompt_logprobs = [7], [None]
    assert outputs_of(finished)[-1] == ("seeded0's prompt", ())


def test_some_requests_arrive_while_others_decode() -> None:
    for batches in workload().batches.values():
        for batch in batches:
            assert batch.arrivals[0] == 0 < batch.arrivals[-1]
            assert list(batch.arrivals) == sorted(batch.arrivals)


def test_one_token_leaves_no_time_to_arrive_late() -> None:
    made = workload(prompts=4, batches=(4,), max_tokens=1)
    assert {a for batch in made.batches[4] for a in batch.arrivals} == {0}


def test_it_survives_json() -> None:
    made = workload()
    assert Workload.from_json(json.loads(json.dumps(made.as_json()))) == made


def test_prompts_fit_a_short_model() -> None:
    assert workload(max_positions=64).longest <= 64


def test_impossible_requests_are_refused_with_what_to_give() -> None:
    with pytest.raises(ConfigurationError, match="--prompts 16"):
        workload(prompts=8)
    with pytest.raises(ConfigurationError, match="--max-tokens 24"):
        workload(max_positions=24)


def test_greedy_requests_are_continued_from_the_middle_of_their_output() -> None:
    made = workload(prompts=2, batches=(2,), max_tokens=4)
    tokens = [f"{token} 1 {token}:bf800000" for token in (9, 8, 7, 6)]
    outputs = {request.name: tokens for request in made.requests}
    again = continued(made, outputs)
    assert sorted(again) == ["greedy0", "greedy1"]
    (before,) = (r for r in made.requests if r.name == "greedy0")
    assert again["greedy0"].prompt == (*before.prompt, 9, 8)
    assert again["greedy0"].max_tokens == 2
    # The logprobs of the prompt are those of another prompt now.
    assert before.prompt_logprobs and again["greedy0"].prompt_logprobs is None
    assert made.submissions() == 4 + 4 + 2
    # Penalties and stop words see what was generated, not what came as a prompt.
    kept = {
        request.name
        for request in workload(prompts=4, batches=(2,)).requests
        if continued_after(request)
    }
    assert kept == {"greedy0", "greedy1"}
    assert continued(workload(prompts=1, batches=(2,), max_tokens=1), {}) == {}
