# SPDX-License-Identifier: Apache-2.0
"""rms_norm, with and without the residual, as a provider of vLLM's IR operators."""

from functools import cache

import torch

from vllm_ascend.batch_invariant import operators

PROVIDER = "batch_invariant"


def _plain(x: torch.Tensor, weight: torch.Tensor | None, variance_size: int | None) -> bool:
    # Anything else stays with vLLM's native form, whose mean is overridden too.
    return (
        variance_size is None
        and weight is not None
        and x.dtype in operators.FLOAT_DTYPES
        and weight.dtype == x.dtype
        and x.numel() > 0
    )


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> torch.Tensor:
    """x [..., D], weight [D], both of one type -> [..., D] in that type."""
    out: torch.Tensor = operators.get("npu_rms_norm_batch_invariant")(x, weight, epsilon)[0]
    return out


def fused_add_rms_norm(
    x: torch.Tensor,
    x_residual: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm of x + x_residual, and that sum in x's type."""
    add_rms_norm = operators.get("npu_add_rms_norm_batch_invariant")
    out, _, total = add_rms_norm(x, x_residual, weight, epsilon)
    return out, total


@cache
def register() -> None:
    """Makes the provider known to vLLM in this process. It is used where the priority says so."""
    from vllm import ir

    def takes(
        x: torch.Tensor,
        weight: torch.Tensor | None,
        epsilon: float,
        variance_size: int | None = None,
    ) -> bool:
        return _plain(x, weight, variance_size)

    def takes_residual(
        x: torch.Tensor,
        x_residual: torch.Tensor,
        weight: torch.Tensor | None,
        epsilon: float,
        variance_size: int | None = None,
    ) -> bool:
        return x_residual.dtype == x.dtype and _plain(x, weight, variance_size)

    ir.ops.rms_norm.register_impl(PROVIDER, supports_args=takes)(rms_norm)
    ir.ops.fused_add_rms_norm.register_impl(PROVIDER, supports_args=takes_residual)(
        fused_add_rms_norm
    )
