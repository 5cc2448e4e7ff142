# SPDX-License-Identifier: Apache-2.0
"""Random calls of `torch.ops.batch_invariant_ops`, with infinities and NaN at any place, against
float64. The kernels' own fuzzer is csrc/fuzz; this is for what lies between them and Python.

    python -m ops.random_calls SEED CALLS       (PYTHONPATH=tests)

Values keep away from the ends of fp32's range, so that what is infinite or NaN in float64 is in
fp32 too."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import batch_invariant_ops  # noqa: F401 - registers the operators
import torch

ops = torch.ops.batch_invariant_ops
U = 2.0**-24
# Half a step above 1, and what is lost near 0.
UNITS = {
    torch.float32: (U, 2.0**-126),
    torch.bfloat16: (2.0**-8, 2.0**-126),
    torch.float16: (2.0**-11, 2.0**-24),
}
SPECIALS = (float("inf"), -float("inf"), float("nan"), 0.0)
WRONG = (RuntimeError, IndexError, NotImplementedError)


class Draw:
    """The choices of one call."""

    def __init__(self, seed: int, call: int) -> None:
        self.random = random.Random(f"{seed} {call}")
        self.torch = torch.Generator().manual_seed(self.random.getrandbits(62))
        self.dtype = self.random.choice([torch.float32, torch.bfloat16, torch.float16])

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def size(self, most: int = 9) -> int:
        return 0 if self.chance(3) else self.random.randint(1, most)

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.random.randint(least, most)))

    def tensor(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """At random strides, among NaN, in half of the calls with special values."""
        x = torch.randn(shape, generator=self.torch)
        if self.chance(50):
            chosen = torch.tensor(self.random.sample(SPECIALS, self.random.randint(1, 3)))
            where = torch.rand(shape, generator=self.torch) < self.random.choice([0.01, 0.1, 0.9])
            index = torch.randint(len(chosen), shape, generator=self.torch)
            x = torch.where(where, chosen[index], x)
        return self.laid_out(x.to(dtype or self.dtype))

    def laid_out(self, x: torch.Tensor) -> torch.Tensor:
        order = list(range(x.dim()))
        if self.chance(60):
            self.random.shuffle(order)
        sizes = [x.shape[d] + self.random.choice([0, 0, 1, 3]) for d in order]
        buffer = torch.full(sizes, float("nan"), dtype=x.dtype)
        back = [order.index(d) for d in range(x.dim())]
        view = buffer.permute(back)[tuple(slice(0, n) for n in x.shape)] if x.dim() else buffer
        view.copy_(x)
        if x.dim() and x.numel() and self.chance(15):
            d = self.random.randrange(x.dim())
            view = view.narrow(d, 0, 1).expand(x.shape)
        return view


def compare(found: torch.Tensor, exact: torch.Tensor, error: torch.Tensor, what: str) -> None:
    """Infinities and NaN where `exact` has them, all else within `error` and rounding."""
    assert found.shape == exact.shape, f"{what}: shape {found.shape}, expected {exact.shape}"
    wide = found.double()
    finite = exact.isfinite()
    assert torch.equal(wide.isnan(), exact.isnan()), f"{what}: NaN at another place"
    assert torch.equal(wide.isfinite(), finite), f"{what}: infinity at another place"
    assert torch.equal(wide[exact.isinf()], exact[exact.isinf()]), f"{what}: another infinity"
    unit, tiny = UNITS[found.dtype]
    allowed = 1.01 * (error + unit * (exact.abs() + error)) + tiny
    wrong = ~((wide - exact).abs() <= allowed) & finite
    assert not wrong.any(), f"{what}: {wide[wrong][0]}, expected {exact[wrong][0]}"


def products(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of products and their error. Not torch's matmul: of infinities it may make NaN."""
    terms = a.double().unsqueeze(-1) * b.double().unsqueeze(-3)
    return terms.sum(-2), a.shape[-1] * U * terms.abs().sum(-2)


def mm(draw: Draw) -> None:
    m, k, n = draw.size(), draw.size(70), draw.size(40)
    a, b = draw.tensor(m, k), draw.tensor(k, n)
    compare(ops.npu_mm_batch_invariant(a, b), *products(a, b), "mm")


def matmul(draw: Draw) -> None:
    k = draw.size()
    batch = draw.shape(0, 3)
    other = tuple(1 if draw.chance(30) else n for n in batch[draw.random.randint(0, len(batch)) :])
    a, b = draw.tensor(*batch, draw.size(), k), draw.tensor(*other, k, draw.size())
    if draw.chance(50):
        a, b = b.mT, a.mT
    compare(ops.npu_matmul_batch_invariant(a, b), *products(a, b), "matmul")


def linear(draw: Draw) -> None:
    m, k, n = draw.size(), draw.size(70), draw.size(80)
    x, weight = draw.tensor(m, k), draw.tensor(n, k)
    bias = draw.tensor(n) if draw.chance(50) else None
    exact, error = products(x, weight.mT)
    if bias is not None:
        exact = exact + bias.double()
        error = error + U * (exact.abs() + error)
    compare(ops.npu_linear_batch_invariant(x, weight, bias), exact, error, "linear")
    packed = ops.npu_weight_pack_batch_invariant(weight)
    found = ops.npu_linear_packed_batch_invariant(x, packed, n, bias)
    compare(found, exact, error, "linear_packed")


def grouped_matmul(draw: Draw) -> None:
    experts, m, k, n = draw.random.randint(1, 5), draw.size(20), draw.size(40), draw.size(40)
    x, weight = draw.tensor(m, k), draw.tensor(experts, n, k)
    ends = [*sorted(draw.random.randint(0, m) for _ in range(experts - 1)), m]
    group_list = torch.tensor(ends)
    begins = [0, *ends[:-1]]
    parts = [
        products(x[begin:end], weight[e].mT)
        for e, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]
    exact, error = (torch.cat(part) for part in zip(*parts, strict=True))
    found = ops.npu_grouped_matmul_batch_invariant(x, weight, group_list)
    compare(found, exact, error, "grouped_matmul")
    packed = ops.npu_weight_pack_batch_invariant(weight)
    found = ops.npu_grouped_matmul_packed_batch_invariant(x, packed, n, group_list)
    compare(found, exact, error, "grouped_matmul_packed")


def along_a_dim(draw: Draw) -> tuple[torch.Tensor, int]:
    x = draw.tensor(*draw.shape(1))
    return x, draw.random.randrange(-x.dim(), x.dim())


def reduce(draw: Draw) -> None:
    x, dim = along_a_dim(draw)
    keepdim = draw.chance(50)
    wide = x.double()
    total, size = wide.sum(dim, keepdim), wide.abs().sum(dim, keepdim)
    error = 71 * U * size
    found = ops.npu_reduce_sum_batch_invariant(x, dim, keepdim)
    compare(found, total, error, "reduce_sum")
    count = x.shape[dim]
    found = ops.npu_reduce_mean_batch_invariant(x, dim, keepdim)
    exact = wide.mean(dim, keepdim)
    compare(found, exact, error / max(count, 1) + U * exact.abs(), "reduce_mean")


def softmax(draw: Draw) -> None:
    x, dim = along_a_dim(draw)
    if not x.shape[dim]:
        return
    wide = x.double()
    below = (wide.amax(dim, keepdim=True) - wide).nan_to_num(0.0, 0.0, 0.0)
    exact = wide.softmax(dim)
    error = (2 * below + 76) * U * exact
    compare(ops.npu_softmax_batch_invariant(x, dim), exact, error, "softmax")
    exact = wide.log_softmax(dim)
    error = U * (4 * below.amax(dim, keepdim=True) + 2 * exact.abs() + 84)
    compare(ops.npu_log_softmax_batch_invariant(x, dim), exact, error, "log_softmax")


def rms_norm(draw: Draw) -> None:
    shape = (*draw.shape(), draw.random.randint(1, 40))
    x, gamma = draw.tensor(*shape), draw.tensor(shape[-1])
    if draw.chance(50):
        other = draw.tensor(*shape)
        y, rstd, total = ops.npu_add_rms_norm_batch_invariant(x, other, gamma, 1e-5)
        exact = x.double() + other.double()
        compare(total, exact, U * exact.abs(), "the sum of add_rms_norm")
        x = total
    else:
        y, rstd = ops.npu_rms_norm_batch_invariant(x, gamma, 1e-5)
    wide = x.double()
    exact = (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    compare(rstd, exact, 38 * U * exact, "rstd")
    scaled = wide * exact * gamma.double()
    unit, _ = UNITS[gamma.dtype]
    compare(y, scaled, (40 * U + unit) * scaled.abs(), "rms_norm")


def attention(draw: Draw) -> None:
    kv_heads, group, dims = (draw.random.randint(1, n) for n in (3, 3, 40))
    q_lens = [draw.random.choice([1, 1, 2, 5]) for _ in range(draw.random.randint(1, 4))]
    kv_lens = [n + draw.random.randint(0, 40) for n in q_lens]
    causal, scale = draw.chance(50), dims**-0.5
    ends = torch.tensor(q_lens).cumsum(0).tolist()
    query = draw.tensor(ends[-1], kv_heads * group, dims)
    arguments: dict[str, Any] = {"sparse_mode": 3 if causal else 0}
    block = draw.random.randint(1, 20)
    needed = [-(-n // block) for n in kv_lens]
    cache_shape = (sum(needed) + 2, kv_heads, block, dims)
    # A cache's last extent is dense.
    key, value = (draw.tensor(*cache_shape).contiguous() for _ in range(2))
    order = list(range(cache_shape[0]))
    draw.random.shuffle(order)
    table = torch.zeros(len(q_lens), max(needed), dtype=torch.int32)
    for request, count in enumerate(needed):
        table[request, :count] = torch.tensor([order.pop() for _ in range(count)])
    query = query.contiguous()
    out, lse = ops.npu_fused_infer_attention_score_batch_invariant(
        *(query, key, value),
        num_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        input_layout="TND",
        scale=scale,
        actual_seq_lengths=ends,
        actual_seq_lengths_kv=kv_lens,
        block_table=table,
        block_size=block,
        softmax_lse_flag=True,
        **arguments,
    )
    for request, (q_len, kv_len) in enumerate(zip(q_lens, kv_lens, strict=True)):
        blocks = table[request, : needed[request]].long()
        rows = slice(ends[request] - q_len, ends[request])
        q = query[rows].double()
        k, v = (
            cache[blocks]
            .transpose(1, 2)
            .flatten(0, 1)[:kv_len]
            .double()
            .repeat_interleave(group, 1)
            for cache in (key, value)
        )
        scores = (q.unsqueeze(1) * k.unsqueeze(0)).sum(-1) * scale  # [S, L, N]
        size = (q.unsqueeze(1) * k.unsqueeze(0)).abs().sum(-1) * scale
        own = torch.arange(kv_len - q_len, kv_len)
        for i in range(q_len):
            seen = int(own[i]) + 1 if causal else kv_len
            s = scores[i, :seen]
            weights = s.softmax(0)
            exact = (weights.unsqueeze(-1) * v[:seen]).sum(0)
            largest = v[:seen].abs().nan_to_num(0.0, 0.0, 0.0).amax((0, 2), keepdim=True)[0]
            terms = size[i, :seen].nan_to_num(0.0, 0.0, 0.0).amax(0).unsqueeze(-1)
            spread = 4 * (dims + 1) * terms
            compare(out[rows][i], exact, (spread + 8 * terms + 200) * U * largest, "attention")
            # The README's: a score of +inf makes the row NaN.
            exact_lse = s.logsumexp(0).masked_fill(s.eq(float("inf")).any(0), float("nan"))
            exact_lse = exact_lse.unsqueeze(-1)
            error = (spread + 8 * terms + 100 + 2 * exact_lse.abs()) * U
            compare(lse[rows][i], exact_lse, error, "lse")


def refused(draw: Draw) -> None:
    """Sizes that do not fit, dtypes and ranks that are not taken."""
    n = draw.random.randint(1, 9)
    x = draw.tensor(n, n)
    wrong: list[Callable[[], object]] = [
        lambda: ops.npu_mm_batch_invariant(x, draw.tensor(n + 1, n)),
        lambda: ops.npu_mm_batch_invariant(x, draw.tensor(n)),
        lambda: ops.npu_matmul_batch_invariant(x, draw.tensor(2, n + 1, n)),
        lambda: ops.npu_mm_batch_invariant(x, x.double()),
        lambda: ops.npu_linear_batch_invariant(x, draw.tensor(n, n + 1)),
        lambda: ops.npu_linear_packed_batch_invariant(x, x, n),
        lambda: ops.npu_reduce_sum_batch_invariant(x, draw.random.choice([2, -3, 2**40]), False),
        lambda: ops.npu_softmax_batch_invariant(x, draw.random.choice([2, -3, -(2**40)])),
        lambda: ops.npu_rms_norm_batch_invariant(x, draw.tensor(n + 1)),
        lambda: ops.npu_grouped_matmul_batch_invariant(
            x, draw.tensor(1, n, n), torch.tensor([draw.random.choice([-1, n + 1])])
        ),
    ]
    try:
        result = draw.random.choice(wrong)()
    except WRONG as error:
        assert str(error), "an error without a message"
    else:
        raise AssertionError(f"expected an error, found {result}")


OPERATORS = (mm, matmul, linear, grouped_matmul, reduce, softmax, rms_norm, attention, refused)


def make_calls(seed: int, calls: int) -> None:
    for call in range(calls):
        draw = Draw(seed, call)
        operator = draw.random.choice(OPERATORS)
        try:
            operator(draw)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}, call {call}, {operator.__name__}: {error}"
            ) from error


if __name__ == "__main__":
    make_calls(int(sys.argv[1]), int(sys.argv[2]))
    print(f"{sys.argv[2]} calls")
