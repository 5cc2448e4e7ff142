# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts: rows sorted by expert, two grouped matmuls, combined slot by slot.

A row of a grouped matmul has the bits of that row alone, and a token's experts are added in the
order of the router's slots, so the tokens that share an expert do not touch one another.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from vllm_ascend.batch_invariant import operators
from vllm_ascend.batch_invariant.overrides import Override
from vllm_ascend.batch_invariant.switch import ModeRefused

_HOOK = "backend_to_kernel_cls"


def experts(
    x: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    intermediate: int,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    num_experts: int,
) -> torch.Tensor:
    """SwiGLU experts for x [T, H] with router slots [T, k]; returns [T, H] in x's type.

    w13 and w2 are the packed forms of [E, 2 * intermediate, H] and [E, H, intermediate].
    """
    tokens, hidden = x.shape
    slots = topk_ids.shape[1]
    flat = topk_ids.reshape(-1).long()
    by_expert = flat.argsort(stable=True)
    ends = torch.bincount(flat, minlength=num_experts).cumsum(0)
    grouped_matmul = operators.get("npu_grouped_matmul_packed_batch_invariant")

    rows = x.index_select(0, by_expert.div(slots, rounding_mode="floor"))
    gate_up = grouped_matmul(rows, w13, 2 * intermediate, ends)
    activated = F.silu(gate_up[:, :intermediate]) * gate_up[:, intermediate:]
    sorted_out = grouped_matmul(activated, w2, hidden, ends)

    out = torch.empty_like(sorted_out)
    out[by_expert] = sorted_out
    per_slot = out.view(tokens, slots, hidden)
    # Multiplication and addition as two roundings each: fused ones differ between the vector and
    # the scalar path of an element-wise kernel.
    total = per_slot[:, 0].float() * topk_weights[:, 0:1]
    for slot in range(1, slots):
        total += per_slot[:, slot].float() * topk_weights[:, slot : slot + 1]
    return total.to(x.dtype)


@cache
def _experts_class() -> type:
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    from vllm.model_executor.utils import replace_parameter

    class BatchInvariantExperts(CPUUnquantizedExperts):
        """Unquantised experts without tensor or expert parallelism."""

        @staticmethod
        def _supports_batch_invariance() -> bool:
            return True

        @staticmethod
        def is_supported_config(
            cls: Any,
            moe_config: Any,
            weight_key: Any,
            activation_key: Any,
            activation_format: Any,
        ) -> tuple[bool, str | None]:
            # The parent adds conditions of the kernels that we replace.
            import vllm.model_executor.layers.fused_moe.modular_kernel as modular_kernel

            supported: tuple[bool, str | None] = modular_kernel.FusedMoEExperts.is_supported_config(
                cls, moe_config, weight_key, activation_key, activation_format
            )
            return supported

        @staticmethod
        def _supports_activation(activation: Any) -> bool:
            return bool(activation == MoEActivation.SILU)

        @staticmethod
        def _supports_parallel_config(moe_parallel_config: Any) -> bool:
            return not moe_parallel_config.use_ep

        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            """Packs w13 [E, 2I, H] and w2 [E, H, I] and frees the loaded weights."""
            if self.w1_bias is not None or self.w2_bias is not None:
                raise ModeRefused("VLLM_BATCH_INVARIANT=1: experts with a bias are not supported")
            self.num_experts, _, self.intermediate = layer.w2_weight.shape
            self.w13 = self._pack(layer, "w13_weight")
            self.w2 = self._pack(layer, "w2_weight")

        def _pack(self, layer: torch.nn.Module, name: str) -> torch.Tensor:
            weight = getattr(layer, name).detach()
            packed: torch.Tensor = operators.get("npu_weight_pack_batch_invariant")(weight)
            # vLLM reads the number of experts and of outputs from the parameter's shape.
            replace_parameter(layer, name, weight.new_empty(*weight.shape[:2], 0))
            return packed

        def apply(
            self,
            output: torch.Tensor,
            hidden_states: torch.Tensor,
            w1: torch.Tensor,
            w2: torch.Tensor,
            topk_weights: torch.Tensor,
            topk_ids: torch.Tensor,
            activation: Any,
            global_num_experts: int,
            expert_map: torch.Tensor | None,
            a1q_scale: torch.Tensor | None,
            a2_scale: torch.Tensor | None,
            workspace13: torch.Tensor,
            workspace2: torch.Tensor,
            expert_tokens_meta: Any,
            apply_router_weight_on_input: bool,
        ) -> None:
            """Writes into output [T, H]; w1 and w2 are the empty parameters left by packing."""
            if apply_router_weight_on_input:  # vLLM has multiplied hidden_states already
                topk_weights = torch.ones_like(topk_weights)
            output.copy_(
                experts(
                    hidden_states,
                    self.w13,
                    self.w2,
                    self.intermediate,
                    topk_weights.float(),
                    topk_ids,
                    self.num_experts,
                )
            )

    return BatchInvariantExperts


def _install() -> None:
    from vllm.model_executor.layers.fused_moe.oracle import unquantized

    stock = getattr(unquantized, _HOOK)

    def kernel_classes(backend: Any) -> list[type]:
        if backend == unquantized.UnquantizedMoeBackend.CPU:
            return [_experts_class()]
        classes: list[type] = stock(backend)
        return classes

    setattr(unquantized, _HOOK, kernel_classes)


def _leave_out() -> None:
    """vLLM's mode refuses its own experts on a CPU, and rightly so; a control has to run them."""
    from vllm.model_executor.layers.fused_moe.oracle import unquantized

    for stock in getattr(unquantized, _HOOK)(unquantized.UnquantizedMoeBackend.CPU):
        stock._supports_batch_invariance = staticmethod(lambda: True)


OVERRIDES = (
    Override(
        name="vllm::moe",
        target=f"vllm.model_executor.layers.fused_moe.oracle.unquantized.{_HOOK}",
        by=("npu_weight_pack_batch_invariant", "npu_grouped_matmul_packed_batch_invariant"),
        dispatch_key=None,
        reason="vLLM's experts choose their blocking by the number of rows of an expert",
        install=_install,
        leave_out=_leave_out,
    ),
)
