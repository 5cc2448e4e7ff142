# SPDX-License-Identifier: Apache-2.0
"""The size of the KV cache where the user gave none.

vLLM on a CPU asks for 92 % of the machine's memory and refuses to start when that much is not
free. The mode takes what its requests can use, and never more than half of what is free.
"""

from collections.abc import Mapping
from typing import Any

from vllm.logger import init_logger
from vllm.utils.cpu_resource_utils import get_allowed_cpu_list, get_memory_node_info
from vllm.utils.mem_utils import format_gib

logger = init_logger("vllm.ascend.batch_invariant")

# The other half is for weights that are packed at their first use, activations, and neighbours.
SHARE_OF_FREE_MEMORY = 0.5


def _memory() -> Any:
    """Total and available bytes of the memory node that vLLM binds its worker to."""
    return get_memory_node_info(get_allowed_cpu_list()[0].numa_node)


def lower_start_up_demand(cache_config: Any) -> None:
    """Lowers gpu_memory_utilization to what is free, so that vLLM's start-up check passes.

    The mode sizes the KV cache by `affordable_bytes`, after the weights are loaded.
    """
    memory = _memory()
    # Less than all: vLLM compares it with the memory that is free a moment later.
    free = 0.9 * memory.available_memory / memory.total_memory
    cache_config.gpu_memory_utilization = min(cache_config.gpu_memory_utilization, max(free, 0.01))


def blocks_per_request(tokens: int, block_size: int) -> int:
    """KV blocks that a request of so many tokens fills."""
    return -(-tokens // block_size)


def affordable_bytes(specs: Mapping[str, Any], *, max_model_len: int, max_num_seqs: int) -> int:
    """Bytes for the KV cache of all layers in `specs` (layer name -> vLLM's KVCacheSpec).

    As much as max_num_seqs requests of max_model_len tokens can fill, at most
    SHARE_OF_FREE_MEMORY of the memory that is free now, a whole number of blocks. Raises ValueError
    where not even one such request fits.
    """
    if not specs:
        return 0
    block_size = next(iter(specs.values())).block_size
    per_block = sum(int(spec.page_size_bytes) for spec in specs.values())
    per_request = blocks_per_request(max_model_len, block_size)
    # vLLM keeps one block for itself (the null block).
    wanted = 1 + per_request * max_num_seqs
    affordable = int(_memory().available_memory * SHARE_OF_FREE_MEMORY) // per_block
    blocks = min(wanted, affordable)
    if blocks < 1 + per_request:
        fits = max(blocks - 1, 0) * block_size
        raise ValueError(
            f"VLLM_BATCH_INVARIANT=1: a request of {max_model_len} tokens needs "
            f"{format_gib((1 + per_request) * per_block)} GiB of KV cache and this machine can "
            f"spare {format_gib(blocks * per_block)} GiB: give --max-model-len {fits} or less, or "
            f"--kv-cache-memory-bytes {(1 + per_request) * per_block} to insist"
        )
    logger.info(
        "Batch-invariant mode: KV cache of %s GiB, %d blocks of %d tokens "
        "(--kv-cache-memory-bytes chooses another size).",
        format_gib(blocks * per_block),
        blocks,
        block_size,
    )
    return blocks * per_block
