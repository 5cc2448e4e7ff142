# SPDX-License-Identifier: Apache-2.0
"""Error bounds, from the numeric contracts in csrc/ops/*/README.md.

Each takes operands and gives, in float64, the exact result and the largest error allowed.
"""

from __future__ import annotations

import math

import torch

# Unit roundoff: half the distance from 1 to the next number.
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# Half the smallest number: what rounding costs where the result is tiny.
HALF_SMALLEST = {torch.float32: 2.0**-150, torch.bfloat16: 2.0**-134, torch.float16: 2.0**-25}
U = UNIT[torch.float32]
# Higher orders of u in bounds that are stated to first order.
SLACK = 1.01
# Below this, float32 arithmetic loses relative accuracy, and bfloat16 products may count as zero.
TINY = 2.0**-126


def assert_within(
    found: torch.Tensor, exact: torch.Tensor, error: torch.Tensor, terms: int = 1
) -> None:
    """`error` is what arithmetic may cost; rounding to the result's own type is added here."""
    rounding = UNIT[found.dtype] * (exact.abs() + error) + HALF_SMALLEST[found.dtype]
    allowed = SLACK * (error + rounding) + terms * TINY
    wrong = ~((found.double() - exact).abs() <= allowed)
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {found.numel()} elements beyond the bound, e.g. "
        f"{found[wrong][0]} for {exact[wrong][0]} +- {allowed[wrong][0]}"
    )


def assert_product_within(
    found: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None
) -> None:
    """One chain of K fused multiply-adds (csrc/ops/matmul), then the bias."""
    exact = a.double() @ b.double()
    error = a.shape[-1] * U * (a.double().abs() @ b.double().abs())
    if bias is not None:
        exact = exact + bias.double()
        error = error + U * (exact.abs() + error)
    assert_within(found, exact, error, terms=a.shape[-1])


Dims = int | list[int]


def assert_sum_within(found: torch.Tensor, x: torch.Tensor, dim: Dims, keepdim: bool) -> None:
    wide = x.double()
    exact = wide.sum(dim, keepdim)
    assert_within(found, exact, 70 * U * wide.abs().sum(dim, keepdim) + U * exact.abs())


def assert_mean_within(found: torch.Tensor, x: torch.Tensor, dim: Dims, keepdim: bool) -> None:
    """The sum, and one division."""
    wide = x.double()
    exact = wide.mean(dim, keepdim)
    assert_within(found, exact, 70 * U * wide.abs().mean(dim, keepdim) + 2 * U * exact.abs())


def assert_softmax_within(found: torch.Tensor, x: torch.Tensor, dim: int) -> None:
    wide = x.double()
    below = wide.amax(dim, keepdim=True) - wide
    exact = wide.softmax(dim)
    assert_within(found, exact, (below + math.log(x.shape[dim]) + 76) * U * exact)


def assert_log_softmax_within(found: torch.Tensor, x: torch.Tensor, dim: int) -> None:
    wide = x.double()
    below = wide.amax(dim, keepdim=True) - wide
    exact = wide.log_softmax(dim)
    log_sum = torch.exp(-below).sum(dim, keepdim=True).log()
    terms = 2 * below + exact.abs() + log_sum.abs() + 74 + 2 * below.amax(dim, keepdim=True)
    assert_within(found, exact, U * terms)


def assert_rms_norm_within(
    found: torch.Tensor, rstd: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, epsilon: float
) -> None:
    """rstd to 38 u; then a product, a rounding to gamma's type, a product."""
    wide = x.double()
    exact = (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    assert_within(rstd, exact, 38 * U * exact)
    scaled = wide * exact * gamma.double()
    error = (38 * U + U + UNIT[gamma.dtype] + U) * scaled.abs()
    assert_within(found, scaled, error + HALF_SMALLEST[gamma.dtype] * gamma.double().abs())


def assert_attention_within(
    found: torch.Tensor,
    lse: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    visible: torch.Tensor,
) -> None:
    """One request: query [S, N, D], key and value [L, N, D] (heads repeated), visible [S, L].

    Output to (2 E + 4 R + 8 n + 160) u max|v|, log-sum-exp to (E + 2 R + 8 n + 40 + 2 |lse|) u:
    E = (D + 1) max sum|q k|, R the span of the scores, n the tiles of 128 keys that the row sees.
    """
    sees = visible.any(1)
    assert found[~sees].eq(0).all()
    assert lse[~sees].eq(-float("inf")).all()
    visible = visible[sees]
    q, k, v = query[sees].double(), key.double(), value.double()
    hidden = ~visible.unsqueeze(1)
    scores = torch.einsum("snd,lnd->snl", q, k) * scale
    terms = torch.einsum("snd,lnd->snl", q.abs(), k.abs()) * scale

    def largest(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(hidden, -float("inf")).amax(-1, keepdim=True)

    exact_lse = scores.masked_fill(hidden, -float("inf")).logsumexp(-1, keepdim=True)
    weights = torch.exp(scores - exact_lse).masked_fill(hidden, 0)
    exact = torch.einsum("snl,lnd->snd", weights, v)
    e = (q.shape[-1] + 1) * largest(terms)
    r = largest(scores) + largest(-scores)
    tile = torch.arange(visible.shape[1]) // 128
    n = torch.stack([visible[:, tile == t].any(1) for t in tile.unique()]).sum(0).view(-1, 1, 1)
    values = largest(v.abs().amax(-1).t().expand(scores.shape))
    error = (2 * e + 4 * r + 8 * n + 160) * U * values
    assert_within(found[sees], exact, error.expand(exact.shape))
    assert_within(lse[sees], exact_lse, (e + 2 * r + 8 * n + 40 + 2 * exact_lse.abs()) * U)
