# SPDX-License-Identifier: Apache-2.0
"""The size of the KV cache where the user gave none.

vLLM on a CPU asks for 92 % of the machine's memory and refuses to start when that much is not
free. The mode takes what its requests can use, and never more than half of what is free.
"""

from collections.abc import Mapping
from typing import Any

from vllm.logger import init_logger
from vllm.utils.cpu_resource_utils import get_allowed_cpu_list, get_memory_node_info

from vllm_ascend.batch_invariant.switch import ModeRefused

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


def _shortage(
    *, blocks: int, per_block: int, block_size: int, max_model_len: int, source: str
) -> str | None:
    """None where a request of max_model_len tokens fits into so many blocks, else one line.

    `source` says in words where the blocks come from.
    """
    # vLLM keeps one block for itself (the null block).
    needed = 1 + blocks_per_request(max_model_len, block_size)
    if blocks >= needed:
        return None
    fits = max(blocks - 1, 0) * block_size
    shorter = f"--max-model-len {fits} or less, or " if fits else ""
    return (
        f"a request of {max_model_len} tokens needs {_size(needed * per_block)} of KV cache and "
        f"{source} {_size(blocks * per_block)}: give {shorter}"
        f"--kv-cache-memory-bytes {needed * per_block}"
    )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def shortage(vllm_config: Any) -> str | None:
    """None, or one line where no request of max_model_len tokens could ever run.

    Judged from the configuration alone, before weights are loaded and in the user's own process:
    what the engine's process finds out later ends in vLLM's "see root cause above".
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    if model.original_max_model_len == -1:  # vLLM then takes the length that fits
        return None
    parallel = vllm_config.parallel_config
    per_token = 2 * model.get_num_kv_heads(parallel) * model.get_head_size() * model.dtype.itemsize
    per_block = per_token * model.get_num_layers(parallel) * cache.block_size
    given = cache.kv_cache_memory_bytes
    return _shortage(
        blocks=(_affordable() if given is None else given) // per_block,
        per_block=per_block,
        block_size=cache.block_size,
        max_model_len=model.max_model_len,
        source="this machine can spare" if given is None else "--kv-cache-memory-bytes gives",
    )


def _affordable() -> int:
    return int(_memory().available_memory * SHARE_OF_FREE_MEMORY)


def affordable_bytes(specs: Mapping[str, Any], *, max_model_len: int, max_num_seqs: int) -> int:
    """Bytes for the KV cache of all layers in `specs` (layer name -> vLLM's KVCacheSpec).

    As much as max_num_seqs requests of max_model_len tokens can fill, at most
    SHARE_OF_FREE_MEMORY of the memory that is free now, a whole number of blocks. Raises
    ModeRefused where not even one such request fits.
    """
    if not specs:
        return 0
    block_size = next(iter(specs.values())).block_size
    per_block = sum(int(spec.page_size_bytes) for spec in specs.values())
    per_request = blocks_per_request(max_model_len, block_size)
    # vLLM keeps one block for itself (the null block).
    wanted = 1 + per_request * max_num_seqs
    blocks = min(wanted, _affordable() // per_block)
    problem = _shortage(
        blocks=blocks,
        per_block=per_block,
        block_size=block_size,
        max_model_len=max_model_len,
        source="this machine can spare",
    )
    if problem is not None:
        raise ModeRefused(f"VLLM_BATCH_INVARIANT=1: {problem}")
    logger.info(
        "Batch-invariant mode: KV cache of %.2f GiB, %d blocks of %d tokens "
        "(--kv-cache-memory-bytes chooses another size).",
        blocks * per_block / 2**30,
        blocks,
        block_size,
    )
    return blocks * per_block
