# SPDX-License-Identifier: Apache-2.0
"""The operators of stages 1 and 2, as the mode needs them."""

from typing import Any

import torch

NAMESPACE = "batch_invariant_ops"
# What the operators take on a CPU today.
FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

_HOW_TO_INSTALL = (
    "install it by `conda install batch-invariant-ops`, or from the source tree by "
    "`bash csrc/build_batch_invariant_ops.sh cpu` or `COMPILE_CUSTOM_KERNELS=1 "
    "VLLM_BATCH_INVARIANT=1 pip install . --no-build-isolation`, or unset VLLM_BATCH_INVARIANT"
)


def require() -> None:
    """Loads stage 2 and calls one of its operators, which loads stage 1.

    Raises RuntimeError that names the package to install where either is missing.
    """
    try:
        import batch_invariant_ops  # noqa: F401
    except ImportError as error:
        raise RuntimeError(
            f"VLLM_BATCH_INVARIANT=1 needs the package batch_invariant_ops ({error}): "
            f"{_HOW_TO_INSTALL}"
        ) from error
    one = torch.ones(1, 1)
    try:
        get("npu_mm_batch_invariant")(one, one)
    except Exception as error:
        raise RuntimeError(
            f"VLLM_BATCH_INVARIANT=1: batch_invariant_ops cannot run its operators: {error}"
        ) from error


def get(name: str) -> Any:
    """The operator `torch.ops.batch_invariant_ops.<name>`."""
    return getattr(getattr(torch.ops, NAMESPACE), name)
