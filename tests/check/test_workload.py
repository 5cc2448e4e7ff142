# SPDX-License-Identifier: Apache-2.0
"""The workload covers what can go wrong, and is the same each time."""

from __future__ import annotations

import json

import pytest

from vllm_ascend.batch_invariant.check.configuration import ConfigurationError
from vllm_ascend.batch_invariant.check.engine import continued
from vllm_ascend.batch_invariant.check.workload import BLOCK, Workload, make_workload


def workload(prompts: int = 32, batches: tuple[int, ...] = (1, 2, 8, 32), **other: int) -> Workload:
    values = {"max_tokens": 24, "vocab_size": 2048, "max_positions": 4096} | other
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
    assert made.submissions() == 4 + 4 + 2
    assert continued(workload(prompts=1, batches=(2,), max_tokens=1), {}) == {}
