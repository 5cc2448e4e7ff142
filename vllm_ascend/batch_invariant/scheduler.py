# SPDX-License-Identifier: Apache-2.0
"""Scheduler of the mode: a request starts only when it is certain to finish.

Preemption would compute a request's tokens a second time, by another path, so it must not happen.
vLLM preempts when a running request finds no free KV block. This scheduler admits a waiting
request only if the blocks that it can need at most are free beside those that the running ones
can still come to need. Requests are admitted in vLLM's order: one that has to wait holds up those
behind it, so that it cannot starve.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from vllm_ascend.batch_invariant.kv_memory import blocks_per_request
from vllm_ascend.batch_invariant.switch import ModeRefused

logger = init_logger("vllm.ascend.batch_invariant")


def worst_case_blocks(request: Any, max_model_len: int, block_size: int) -> int:
    """KV blocks that the request fills if it generates all of its max_tokens.

    A session that streams its input may come to need all of max_model_len.
    """
    tokens = min(request.num_prompt_tokens + request.max_tokens, max_model_len)
    if request.resumable:
        tokens = max_model_len
    return blocks_per_request(tokens, block_size)


def may_start(
    request: Any, holders: Iterable[Any], capacity: int, max_model_len: int, block_size: int
) -> bool:
    """Whether the request and all that hold blocks can fill their worst case within `capacity`."""
    reserved = sum(
        worst_case_blocks(other, max_model_len, block_size)
        for other in holders
        if other is not request
    )
    return reserved + worst_case_blocks(request, max_model_len, block_size) <= capacity


class NoPreemptionScheduler(Scheduler):
    """vLLM's scheduler with admission by worst case.

    Raises ModeRefused at start-up where the KV cache is too small for one request of max_model_len
    tokens, which would otherwise wait for ever.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The block pool keeps one block for itself (the null block).
        self.capacity = self.kv_cache_manager.block_pool.num_gpu_blocks - 1
        longest = blocks_per_request(self.max_model_len, self.block_size)
        if longest > self.capacity:
            raise ModeRefused(
                f"VLLM_BATCH_INVARIANT=1: the KV cache holds {self.capacity} blocks of "
                f"{self.block_size} tokens and one request of --max-model-len {self.max_model_len} "
                f"can need {longest}: give --max-model-len {self.capacity * self.block_size} or "
                "less, or a larger --kv-cache-memory-bytes"
            )
        self._allocate = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self._allocate_if_certain

    def _allocate_if_certain(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # None tells vLLM that there is no room now; it then stops admitting for this step.
        if request.status != RequestStatus.RUNNING:
            holders = chain(self.running, self.kv_holding_waiting)
            if not may_start(request, holders, self.capacity, self.max_model_len, self.block_size):
                return None
        return self._allocate(request, *args, **kwargs)

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"VLLM_BATCH_INVARIANT=1: request {request.request_id} would be preempted; please "
            "report this with the configuration of the engine"
        )

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, *args: Any, **kwargs: Any
    ) -> bool:
        """As vLLM's; running requests are left alone, since resetting them preempts them."""
        if reset_running_requests and self.running:
            logger.warning("Batch-invariant mode: running requests are not reset.")
            reset_running_requests = False
        done: bool = super().reset_prefix_cache(reset_running_requests, *args, **kwargs)
        return done
