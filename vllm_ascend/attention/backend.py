# SPDX-License-Identifier: Apache-2.0
"""Attention backend of the batch-invariant mode: one operator for prefill and decode alike.

All requests of a step go through one call of the fused attention operator in its TND layout, on a
paged KV cache. A query row's bits depend on its own request's keys alone, so it does not matter
which requests share the call, nor whether the row is part of a prefill or of a decode.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionLayer,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout, KVCacheSpec

from vllm_ascend.batch_invariant import operators
from vllm_ascend.batch_invariant.switch import ModeRefused

BLOCK_SIZE = 128
# Right-down causal: the last query row of a request sees its last key (torch_npu's numbering).
_CAUSAL_RIGHT_DOWN = 3


class BatchInvariantAttentionBackend(AttentionBackend):
    """Decoder self-attention, causal, without sliding window, ALiBi, soft cap or sinks."""

    # vLLM calls do_kv_cache_update() first.
    forward_includes_kv_cache_update: bool = False
    supported_dtypes: ClassVar[list[torch.dtype]] = list(operators.FLOAT_DTYPES)
    supported_kv_cache_dtypes: ClassVar[list[str]] = ["auto", "bfloat16", "float16"]

    @staticmethod
    def get_name() -> str:
        """A member of vLLM's AttentionBackendEnum: the one for backends outside of vLLM."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type["BatchInvariantAttention"]:
        return BatchInvariantAttention

    @staticmethod
    def get_builder_cls() -> type["BatchInvariantMetadataBuilder"]:
        return BatchInvariantMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(
        kv_cache_spec: KVCacheSpec | None = None,
    ) -> list[int | MultipleOf]:
        return [BLOCK_SIZE]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        # A block's memory is contiguous and token-major, which split_cache() relies on.
        return (KVCacheLayout.LBNHC,)

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return bool(attn_type == AttentionType.DECODER)

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


def split_cache(kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views a layer's cache as keys and values, each [blocks, block, kv_heads * D].

    vLLM hands over [blocks, kv_heads, block, 2 * D] whose memory is [blocks, block, kv_heads,
    2 * D]. Only the size of a block matters to vLLM; inside of one we keep all its keys, then all
    its values, which is the layout that the operator takes on every device.
    """
    blocks, heads, block, double_dim = kv_cache.shape
    planes = kv_cache.permute(0, 2, 1, 3).view(blocks, 2, block, heads * double_dim // 2)
    return planes[:, 0], planes[:, 1]


@dataclass
class BatchInvariantMetadata(AttentionMetadata):
    """One step's requests, shared by all layers."""

    num_tokens: int
    """Query rows of all requests, without padding."""
    query_ends: list[int]
    """Cumulative query rows of the requests."""
    key_lengths: list[int]
    """Keys of each request, those of this step included."""
    block_table: torch.Tensor
    """int32 [requests, blocks of the longest request or more]."""


class BatchInvariantMetadataBuilder(AttentionMetadataBuilder[BatchInvariantMetadata]):
    """Takes what the operator needs from vLLM's description of a step."""

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: Any,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> BatchInvariantMetadata:
        """The metadata of one step. Raises ModeRefused for attention that is not causal."""
        common = common_attn_metadata
        if common.causal is not True:
            raise ModeRefused("VLLM_BATCH_INVARIANT=1: attention must be causal")
        requests = common.num_reqs
        return BatchInvariantMetadata(
            num_tokens=common.num_actual_tokens,
            query_ends=common.query_start_loc_cpu[1 : requests + 1].tolist(),
            key_lengths=common.seq_lens[:requests].tolist(),
            block_table=common.block_table_tensor[:requests].to(torch.int32),
        )


class BatchInvariantAttention(AttentionImpl[BatchInvariantMetadata]):
    """One layer's attention. Raises ModeRefused for a kind of attention that it cannot honour."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        unsupported = {
            "ALiBi": alibi_slopes is not None,
            f"a sliding window ({sliding_window})": sliding_window is not None,
            "a soft cap of the logits": bool(logits_soft_cap),
            f"attention of type {attn_type}": attn_type != AttentionType.DECODER,
            "a KV cache shared between layers": kv_sharing_target_layer_name is not None,
            "attention sinks": sinks is not None,
        }
        if found := [name for name, present in unsupported.items() if present]:
            raise ModeRefused(
                f"VLLM_BATCH_INVARIANT=1: this model uses {', '.join(found)}, which the "
                "batch-invariant attention operator does not support"
            )
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype

    def do_kv_cache_update(
        self,
        layer: torch.nn.Module,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Copies key and value [T, kv_heads, D] to their slots; a negative slot is padding."""
        slots = slot_mapping[: key.shape[0]]
        key, value = key[: slots.shape[0]], value[: slots.shape[0]]
        real = slots >= 0
        if not bool(real.all()):
            slots, key, value = slots[real], key[real], value[real]
        block = slots.div(BLOCK_SIZE, rounding_mode="floor")
        offset = slots % BLOCK_SIZE
        key_cache, value_cache = split_cache(kv_cache)
        key_cache[block, offset] = key.reshape(slots.shape[0], -1)
        value_cache[block, offset] = value.reshape(slots.shape[0], -1)

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: BatchInvariantMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """query [T, heads, D] -> output [T, heads, D]; keys and values come from the cache."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("VLLM_BATCH_INVARIANT=1: quantised attention output")
        if attn_metadata is None:  # vLLM's warm-up
            return output
        tokens = attn_metadata.num_tokens
        key_cache, value_cache = split_cache(kv_cache)
        attention = operators.get("npu_fused_infer_attention_score_batch_invariant")
        result, _ = attention(
            query[:tokens],
            key_cache,
            value_cache,
            actual_seq_lengths=attn_metadata.query_ends,
            actual_seq_lengths_kv=attn_metadata.key_lengths,
            block_table=attn_metadata.block_table,
            block_size=BLOCK_SIZE,
            num_heads=self.num_heads,
            num_key_value_heads=self.num_kv_heads,
            scale=self.scale,
            input_layout="TND",
            sparse_mode=_CAUSAL_RIGHT_DOWN,
        )
        output[:tokens].copy_(result.view(tokens, self.num_heads, self.head_size))
        return output
