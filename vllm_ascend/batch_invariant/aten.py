# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch, overridden at dispatcher level on the CPU key.

An override takes the calls that our operators can compute (float32, bfloat16 and float16) and hands
all others (integers, float64, empty tensors, ...) to the kernel that was there before, so that
everything else in the process works as it did.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch

from vllm_ascend.batch_invariant import operators
from vllm_ascend.batch_invariant.overrides import Override

DISPATCH_KEY = "CPU"
# Calls the kernel that was registered before ours, with the arguments of the call.
Stock = Callable[..., torch.Tensor]


def _ours(*tensors: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether our operators take these tensors: one float type, on the CPU, not empty."""
    dtype = dtype or tensors[0].dtype
    return dtype in operators.FLOAT_DTYPES and all(
        tensor.dtype == dtype and tensor.numel() > 0 for tensor in tensors
    )


# ---- matrix products ----------------------------------------------------------------------------


def mm(stock: Stock, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[M, K] x [K, N] -> [M, N]."""
    if not _ours(a, b):
        return stock(a, b)
    return operators.get("npu_mm_batch_invariant")(a, b)


def matmul(stock: Stock, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The products with one more or one less dimension than mm: bmm, mv, dot."""
    if not _ours(a, b):
        return stock(a, b)
    return operators.get("npu_matmul_batch_invariant")(a, b)


def addmm(
    stock: Stock,
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
) -> torch.Tensor:
    """beta * bias + alpha * (a @ b): [M, K] x [K, N] with a bias that broadcasts to [M, N]."""
    if not _ours(bias, a, b):
        return stock(bias, a, b, beta=beta, alpha=alpha)
    if bias.dim() == 1 and bias.shape[0] == b.shape[1] and beta == 1 and alpha == 1:
        return operators.get("npu_linear_batch_invariant")(a, b.t(), bias)
    return _scaled_sum(operators.get("npu_mm_batch_invariant")(a, b), bias, beta, alpha)


def baddbmm(
    stock: Stock,
    bias: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
) -> torch.Tensor:
    """addmm with a leading batch dimension."""
    if not _ours(bias, a, b):
        return stock(bias, a, b, beta=beta, alpha=alpha)
    return _scaled_sum(operators.get("npu_matmul_batch_invariant")(a, b), bias, beta, alpha)


def _scaled_sum(
    product: torch.Tensor, bias: torch.Tensor, beta: complex, alpha: complex
) -> torch.Tensor:
    # Element by element, so no element depends on another one. As in PyTorch, beta = 0 ignores the
    # bias even where it is not finite.
    if alpha != 1:
        product = product * alpha
    return product if beta == 0 else product + bias * beta


# ---- reductions ---------------------------------------------------------------------------------


def reduction(
    operator: str,
    stock: Stock,
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """A sum or mean over any set of dimensions, in row-major order of the reduced ones.

    No dimension, as in `x.sum()`, means all of them.
    """
    if (
        x.dim() == 0
        or not _ours(x, dtype=x.dtype)
        or (dtype is not None and dtype not in operators.FLOAT_DTYPES)
    ):
        return stock(x, dim, keepdim, dtype=dtype)
    if dim and (
        any(not -x.dim() <= d < x.dim() for d in dim) or len({d % x.dim() for d in dim}) < len(dim)
    ):
        return stock(x, dim, keepdim, dtype=dtype)  # which knows how to word the error
    out: torch.Tensor = operators.get(operator).dims(x, dim, keepdim, dtype=dtype)
    return out


def softmax(
    operator: str, stock: Stock, x: torch.Tensor, dim: int, half_to_float: bool
) -> torch.Tensor:
    """softmax or log_softmax over one dimension, in the type of x."""
    if half_to_float or x.dim() == 0 or not _ours(x):
        return stock(x, dim, half_to_float)
    return operators.get(operator)(x, dim)


# ---- element by element -------------------------------------------------------------------------
# PyTorch computes most of a tensor with vectors and the end of each thread's share with scalar
# code. For sigmoid and silu the two differ in the last bit, so that an element's bits depend on
# where in the batch it lies. exp, division and addition have one result on both paths.


def sigmoid(stock: Stock, x: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x)), computed in float32."""
    if not _ours(x):
        return stock(x)
    return _one_plus_exp_of_minus(x.float()).reciprocal_().to(x.dtype)


def silu(stock: Stock, x: torch.Tensor) -> torch.Tensor:
    """x / (1 + exp(-x)), computed in float32."""
    if not _ours(x):
        return stock(x)
    wide = x.float()
    return torch.div(wide, _one_plus_exp_of_minus(wide)).to(x.dtype)


def _one_plus_exp_of_minus(wide: torch.Tensor) -> torch.Tensor:
    return torch.neg(wide).exp_().add_(1.0)


def in_place(compute: Callable[..., torch.Tensor], stock: Stock, x: torch.Tensor) -> torch.Tensor:
    """The in-place form of an element-wise operator."""
    if not _ours(x):
        return stock(x)
    return x.copy_(compute(stock, x))


# ---- registration -------------------------------------------------------------------------------


@cache
def _library() -> torch.library.Library:
    # Kept for the life of the process: its registrations vanish with it.
    return torch.library.Library("aten", "IMPL")


def _install(target: str, compute: Callable[..., torch.Tensor]) -> None:
    stock = torch.library.get_kernel(target, DISPATCH_KEY)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return compute(partial(stock.call_boxed, keys), *args, **kwargs)

    with warnings.catch_warnings():
        # That a kernel is replaced is the point.
        warnings.filterwarnings("ignore", message=".*[Oo]verrid", category=UserWarning)
        _library().impl(target.removeprefix("aten::"), kernel, DISPATCH_KEY, with_keyset=True)


_SPLIT = "its kernel and its order of summation change with the number of rows and of threads"
_TAIL = "the last elements of a thread's share take a scalar path that rounds differently"


def _override(
    target: str, compute: Callable[..., torch.Tensor], by: tuple[str, ...], reason: str
) -> Override:
    return Override(
        name=target,
        target=target,
        by=by,
        dispatch_key=DISPATCH_KEY,
        reason=reason,
        install=partial(_install, target, compute),
    )


OVERRIDES: tuple[Override, ...] = (
    _override("aten::mm", mm, ("npu_mm_batch_invariant",), _SPLIT),
    _override(
        "aten::addmm", addmm, ("npu_linear_batch_invariant", "npu_mm_batch_invariant"), _SPLIT
    ),
    _override("aten::bmm", matmul, ("npu_matmul_batch_invariant",), _SPLIT),
    _override("aten::baddbmm", baddbmm, ("npu_matmul_batch_invariant",), _SPLIT),
    _override("aten::mv", matmul, ("npu_matmul_batch_invariant",), _SPLIT),
    _override("aten::dot", matmul, ("npu_matmul_batch_invariant",), _SPLIT),
    _override(
        "aten::sum.dim_IntList",
        partial(reduction, "npu_reduce_sum_batch_invariant"),
        ("npu_reduce_sum_batch_invariant",),
        _SPLIT,
    ),
    _override(
        "aten::mean.dim",
        partial(reduction, "npu_reduce_mean_batch_invariant"),
        ("npu_reduce_mean_batch_invariant",),
        _SPLIT,
    ),
    _override(
        "aten::_softmax",
        partial(softmax, "npu_softmax_batch_invariant"),
        ("npu_softmax_batch_invariant",),
        _SPLIT,
    ),
    _override(
        "aten::_log_softmax",
        partial(softmax, "npu_log_softmax_batch_invariant"),
        ("npu_log_softmax_batch_invariant",),
        _SPLIT,
    ),
    _override("aten::sigmoid", sigmoid, ("aten::exp", "aten::reciprocal"), _TAIL),
    _override(
        "aten::sigmoid_", partial(in_place, sigmoid), ("aten::exp", "aten::reciprocal"), _TAIL
    ),
    _override("aten::silu", silu, ("aten::exp", "aten::div"), _TAIL),
    _override("aten::silu_", partial(in_place, silu), ("aten::exp", "aten::div"), _TAIL),
)
