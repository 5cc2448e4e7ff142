# SPDX-License-Identifier: Apache-2.0
"""Linear layers and logits: vLLM's CPU path, with weights packed once for our matmul.

vLLM gives each layer a `cpu_linear` when its weights are loaded (oneDNN, or a small-matrix kernel
that chooses by shape); both skip `aten::mm`, so the hook that sets it is replaced.
"""

from typing import Any

import torch

from vllm_ascend.batch_invariant import operators
from vllm_ascend.batch_invariant.overrides import Override

_HOOK = "dispatch_cpu_unquantized_gemm"


class PackedLinear:
    """x -> x @ weight.T + bias, for a weight [N, K] that is packed once.

    Packing waits for the first call where `lazily` says so: for an embedding, which is multiplied
    by only where it is tied to the logits.
    """

    def __init__(self, weight: torch.Tensor, *, lazily: bool = False) -> None:
        self.n, self.k = weight.shape
        self._weight: torch.Tensor | None = weight
        self._packed: torch.Tensor | None = None
        if not lazily:
            self._pack()

    def _pack(self) -> torch.Tensor:
        if self._packed is None:
            self._packed = operators.get("npu_weight_pack_batch_invariant")(self._weight)
            self._weight = None  # its memory is free again where vLLM drops its own reference
        return self._packed

    def __call__(
        self, x: torch.Tensor, _weight: Any, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """[..., K] -> [..., N] in x's type, which is the weight's; vLLM passes a weight too."""
        linear = operators.get("npu_linear_packed_batch_invariant")
        out: torch.Tensor = linear(x.reshape(-1, self.k), self._pack(), self.n, bias)
        return out.view(*x.shape[:-1], self.n)


def _install() -> None:
    import vllm.model_executor.layers.utils as layers

    stock = getattr(layers, _HOOK)

    def dispatch(layer: torch.nn.Module, remove_weight: bool) -> None:
        """Sets `layer.cpu_linear`; drops the original weight where vLLM allows it."""
        weight = layer.weight
        if weight.is_meta or weight.ndim != 2:
            stock(layer, remove_weight)
            return
        layer.cpu_linear = PackedLinear(weight.detach(), lazily=not remove_weight)
        if remove_weight:
            layer.weight = torch.nn.Parameter(
                torch.empty(0, dtype=weight.dtype), requires_grad=False
            )

    setattr(layers, _HOOK, dispatch)


OVERRIDES = (
    Override(
        name="vllm::linear",
        target=f"vllm.model_executor.layers.utils.{_HOOK}",
        by=("npu_weight_pack_batch_invariant", "npu_linear_packed_batch_invariant"),
        dispatch_key=None,
        reason="oneDNN and the small-matrix kernel choose their blocking by the number of rows",
        install=_install,
    ),
)
