# SPDX-License-Identifier: Apache-2.0
"""No request of the mode is ever preempted, and none waits for ever."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_ascend.batch_invariant.kv_memory import affordable_bytes
from vllm_ascend.batch_invariant.switch import ModeRefused

BLOCK = 128
MAX_MODEL_LEN = 1024


def scheduler(cls: type, model: Path, blocks: int) -> Any:
    """A scheduler with a KV cache of `blocks` blocks, one of which vLLM keeps for itself."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    config = EngineArgs(
        model=str(model),
        skip_tokenizer_init=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=4096,
        max_num_seqs=64,
        block_size=BLOCK,
        enable_chunked_prefill=False,
        enable_prefix_caching=False,
        enforce_eager=True,
    ).create_engine_config()
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return cls(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
    )


def request(name: str, prompt: int, max_tokens: int) -> Any:
    from vllm import SamplingParams
    from vllm.v1.request import Request

    return Request(
        request_id=name,
        prompt_token_ids=[1] * prompt,
        sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        pooling_params=None,
    )


def serve(scheduler: Any, requests: list[Any]) -> SimpleNamespace:
    """Runs the requests to their end, one token a step; what happened meanwhile."""
    from vllm.v1.outputs import ModelRunnerOutput

    for item in requests:
        scheduler.add_request(item)
    seen = SimpleNamespace(most_running=0, preempted=0, steps=0, started=[])
    while scheduler.has_unfinished_requests():
        plan = scheduler.schedule()
        names = list(plan.num_scheduled_tokens)
        assert names, "nothing is scheduled although requests are unfinished"
        seen.started += [new.req_id for new in plan.scheduled_new_reqs]
        seen.most_running = max(seen.most_running, len(names))
        seen.steps += 1
        scheduler.update_from_output(
            plan,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[[7]] * len(names),
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
    seen.preempted = sum(item.num_preemptions for item in requests)
    return seen


def workload(count: int, seed: int) -> list[Any]:
    random_numbers = random.Random(seed)
    return [
        request(str(i), random_numbers.randint(1, 500), random_numbers.randint(1, 500))
        for i in range(count)
    ]


@pytest.mark.parametrize("blocks", [9, 17, 33])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_request_finishes_and_none_is_preempted(
    dense_model: Path, blocks: int, seed: int
) -> None:
    from vllm_ascend.batch_invariant.scheduler import NoPreemptionScheduler

    requests = workload(24, seed)
    seen = serve(scheduler(NoPreemptionScheduler, dense_model, blocks), requests)
    assert seen.preempted == 0
    assert all(item.num_output_tokens == item.max_tokens for item in requests)
    # In the order of arrival: a long request is not overtaken for ever.
    assert seen.started == [item.request_id for item in requests]
    # It still batches: serialising would be no achievement.
    assert seen.most_running >= (2 if blocks == 9 else 4)


def test_control_vllms_scheduler_preempts_under_the_same_load(dense_model: Path) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    assert serve(scheduler(Scheduler, dense_model, 17), workload(24, 0)).preempted > 0


def test_a_request_as_long_as_the_cache_runs_alone(dense_model: Path) -> None:
    from vllm_ascend.batch_invariant.scheduler import NoPreemptionScheduler

    requests = [request(str(i), 100, MAX_MODEL_LEN - 100) for i in range(3)]
    seen = serve(scheduler(NoPreemptionScheduler, dense_model, 9), requests)
    assert seen.most_running == 1 and seen.preempted == 0


def test_a_cache_too_small_for_the_longest_request_is_refused(dense_model: Path) -> None:
    from vllm_ascend.batch_invariant.scheduler import NoPreemptionScheduler

    with pytest.raises(
        ModeRefused, match=r"holds 7 blocks .* can need 8: give --max-model-len 896"
    ):
        scheduler(NoPreemptionScheduler, dense_model, 8)


def test_an_aborted_requests_blocks_are_free_for_the_next(dense_model: Path) -> None:
    from vllm.v1.request import RequestStatus

    from vllm_ascend.batch_invariant.scheduler import NoPreemptionScheduler

    engine = scheduler(NoPreemptionScheduler, dense_model, 9)
    engine.add_request(request("first", 10, 1000))
    assert list(engine.schedule().num_scheduled_tokens) == ["first"]
    engine.add_request(request("second", 10, 1000))
    engine.finish_requests("first", RequestStatus.FINISHED_ABORTED)
    assert list(engine.schedule().num_scheduled_tokens) == ["second"]


def specification(bytes_per_block: int) -> SimpleNamespace:
    return SimpleNamespace(block_size=BLOCK, page_size_bytes=bytes_per_block)


def test_the_cache_is_as_large_as_the_requests_can_fill() -> None:
    specs = {"a": specification(1000), "b": specification(500)}
    # 3 requests of 2 blocks each, and vLLM's own block.
    assert affordable_bytes(specs, max_model_len=200, max_num_seqs=3) == 7 * 1500


def test_the_cache_takes_at_most_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend.batch_invariant import kv_memory

    free = SimpleNamespace(available_memory=100_000, total_memory=1)
    monkeypatch.setattr(kv_memory, "_memory", lambda: free)
    specs = {"a": specification(1500)}
    assert affordable_bytes(specs, max_model_len=200, max_num_seqs=100) == 33 * 1500
    with pytest.raises(ModeRefused, match=r"give --max-model-len 4096 or less"):
        affordable_bytes(specs, max_model_len=5000, max_num_seqs=1)
