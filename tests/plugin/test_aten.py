# SPDX-License-Identifier: Apache-2.0
"""Overridden operators of PyTorch: the same numbers, any dtype and shape, fixed bits."""

from __future__ import annotations

from .conftest import RunPython

PRELUDE = """
    import torch
    import torch.nn.functional as F
    from vllm_ascend.batch_invariant import aten, operators

    def install():
        operators.require()
        for override in aten.OVERRIDES:
            override.install()

    def bits(x):
        x = x.contiguous()
        return x.view({4: torch.int32, 2: torch.int16}[x.element_size()])

    def same(a, b):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))

    torch.manual_seed(0)
"""


def test_every_call_gives_what_it_gave_before(run_python: RunPython) -> None:
    """What our operators do not take goes to PyTorch's kernel; the rest is close to it."""
    run_python(
        PRELUDE
        + """
    def calls(dtype):
        x = (torch.randn(3, 5, 7) * 3).to(dtype)
        a, b = (torch.randn(4, 6) * 3).to(dtype), (torch.randn(6, 5) * 3).to(dtype)
        v, bias = (torch.randn(6) * 3).to(dtype), (torch.randn(5) * 3).to(dtype)
        yield "sum()", lambda: x.sum()
        yield "sum of a scalar", lambda: x[0, 0, 0].sum()
        yield "sum over all", lambda: x.sum(dim=(0, 1, 2))
        yield "sum over none", lambda: x.sum(dim=())
        yield "sum over dims", lambda: x.sum(dim=(0, -1))
        yield "sum over dims, kept", lambda: x.sum(dim=(2, 0), keepdim=True)
        yield "sum over the first", lambda: x.sum(0)
        yield "sum over the middle, kept", lambda: x.sum(1, keepdim=True)
        yield "sum, strided", lambda: x.transpose(0, 2).sum(-1)
        yield "sum, empty", lambda: x[:0].sum(0)
        yield "sum over an empty dim", lambda: x[:, :0].sum(1)
        yield "sum to float64", lambda: x.sum(-1, dtype=torch.float64)
        yield "sum to float32", lambda: x.sum(-1, dtype=torch.float32)
        yield "sum, out=", lambda: torch.sum(x, 0, out=torch.empty(5, 7, dtype=x.sum(0).dtype))
        yield "cumsum", lambda: x.cumsum(-1)
        yield "mm", lambda: a @ b
        yield "mm, transposed", lambda: b.t() @ a.t()
        yield "mm, empty", lambda: a[:0] @ b
        yield "mv", lambda: a @ v
        yield "dot", lambda: v @ v
        yield "bmm", lambda: torch.bmm(a.expand(2, 4, 6), b.expand(2, 6, 5))
        yield "addmm", lambda: torch.addmm(bias, a, b)
        yield "addmm, scaled", lambda: torch.addmm(bias, a, b, beta=2, alpha=3)
        yield "addmm, matrix", lambda: torch.addmm(torch.ones(4, 5, dtype=dtype), a, b)
        yield "addmm, column", lambda: torch.addmm(torch.ones(4, 1, dtype=dtype), a, b)
        yield "baddbmm", lambda: torch.baddbmm(bias, a.expand(2, 4, 6), b.expand(2, 6, 5))
        if dtype.is_floating_point:
            yield "linear", lambda: F.linear(a, b.t(), bias)
            yield "mean()", lambda: x.mean()
            yield "mean over dims", lambda: x.mean(dim=(0, 2), keepdim=True)
            yield "mean over the last", lambda: x.mean(-1)
            yield "mean to float32", lambda: x.mean(1, dtype=torch.float32)
            yield "softmax", lambda: x.softmax(-1)
            yield "softmax over the first", lambda: x.softmax(0)
            yield "softmax to float32", lambda: x.softmax(-1, dtype=torch.float32)
            yield "softmax of a scalar", lambda: x[0, 0, 0].softmax(0)
            yield "log_softmax", lambda: x.log_softmax(1)
            yield "log_softmax to float32", lambda: x.log_softmax(1, dtype=torch.float32)
            yield "logsumexp", lambda: x.logsumexp(-1)
            yield "silu", lambda: F.silu(x)
            yield "silu, in place", lambda: F.silu(x.clone(), inplace=True)
            yield "sigmoid", lambda: torch.sigmoid(x)
            yield "sigmoid, in place", lambda: x.clone().sigmoid_()

    types = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32)
    def results():
        torch.manual_seed(0)
        found = {(str(dtype), name): call() for dtype in types for name, call in calls(dtype)}
        flags = torch.rand(4, 9) > 0.5
        found["bool", "sum"] = flags.sum(-1)
        found["bool", "sum()"] = flags.sum()
        found["complex", "sum"] = torch.randn(3, 4, dtype=torch.complex64).sum(0)
        return found

    before = results()
    install()
    after = results()
    for key, expected in before.items():
        got = after[key]
        assert got.dtype == expected.dtype and got.shape == expected.shape, (key, got, expected)
        tolerance = {
            "torch.float32": dict(rtol=1e-5, atol=1e-4),
            "torch.bfloat16": dict(rtol=2e-2, atol=0.3),
            "torch.float16": dict(rtol=4e-3, atol=0.05),
        }.get(key[0], dict(rtol=0, atol=0))
        if "to float32" in key[1]:
            tolerance = dict(rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(got, expected, equal_nan=True, **tolerance, msg=f"{key}")
    """,
        VLLM_BATCH_INVARIANT="1",
    )


def test_wrong_calls_raise_the_errors_of_pytorch(run_python: RunPython) -> None:
    run_python(
        PRELUDE
        + """
    x = torch.randn(2, 3)
    wrong = [lambda: x.sum(2), lambda: x.sum((0, 0)), lambda: x.mean((1, -1)), lambda: x.softmax(5)]
    def errors():
        found = []
        for call in wrong:
            try:
                call()
            except (IndexError, RuntimeError) as error:
                found.append((type(error), str(error)))
            else:
                raise AssertionError("no error")
        return found
    before = errors()
    install()
    assert [kind for kind, _ in errors()] == [kind for kind, _ in before], errors()
    assert errors()[1:3] == before[1:3]
    try:
        x @ x
    except RuntimeError:
        pass
    else:
        raise AssertionError("no error for [2, 3] x [2, 3]")
    """,
        VLLM_BATCH_INVARIANT="1",
    )


def test_gradients_still_flow_through_overridden_operators(run_python: RunPython) -> None:
    run_python(
        PRELUDE
        + """
    install()
    x = torch.randn(4, 6, requires_grad=True)
    w = torch.randn(5, 6, requires_grad=True)
    F.silu(F.linear(x, w)).log_softmax(-1).sum().backward()
    assert x.grad.isfinite().all() and w.grad.isfinite().all()
    """,
        VLLM_BATCH_INVARIANT="1",
    )


SWEEP = """
    def sweep(function, dtype):
        # Whether an element's bits stay when its place in the tensor changes.
        x = (torch.randn(40000) * 4).to(dtype)
        whole = torch.cat([function(piece) for piece in x.split(64)])
        stays = True
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for size in (1, 2, 3, 5, 8, 13, 31, 33, 63, 65, 1000, 32769, 39000):
                for start in (0, 1, 3, 7, 16, 33, 500):
                    part = function(x[start : start + size])
                    stays = stays and same(part, whole[start : start + size])
        return stays
"""


def test_an_elements_bits_do_not_depend_on_its_place(run_python: RunPython) -> None:
    run_python(
        PRELUDE
        + SWEEP
        + """
    install()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for function in (F.silu, torch.sigmoid, torch.exp):
            assert sweep(function, dtype), (function, dtype)
    """,
        VLLM_BATCH_INVARIANT="1",
    )


def test_control_pytorchs_silu_and_sigmoid_depend_on_the_place(run_python: RunPython) -> None:
    run_python(
        PRELUDE
        + SWEEP
        + """
    assert not sweep(F.silu, torch.float32)
    assert not sweep(torch.sigmoid, torch.float32)
    """
    )


def test_rows_of_products_and_reductions_have_fixed_bits(run_python: RunPython) -> None:
    run_python(
        PRELUDE
        + """
    install()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        a, b = torch.randn(48, 300).to(dtype), torch.randn(300, 257).to(dtype)
        bias = torch.randn(257).to(dtype)
        functions = {
            "mm": lambda r: r @ b,
            "addmm": lambda r: torch.addmm(bias, r, b),
            "mv": lambda r: r @ b[:, 0],
            "sum": lambda r: r.sum(-1),
            "mean": lambda r: r.mean(-1),
            "softmax": lambda r: r.softmax(-1),
            "log_softmax": lambda r: r.log_softmax(-1, dtype=torch.float32),
            "logsumexp": lambda r: r.logsumexp(-1),
        }
        for name, function in functions.items():
            torch.set_num_threads(2)
            whole = function(a)
            for threads in (1, 2):
                torch.set_num_threads(threads)
                for start, size in ((0, 1), (5, 1), (7, 3), (11, 17), (1, 47)):
                    part = function(a[start : start + size])
                    assert same(part, whole[start : start + size]), (name, dtype, start, size)
    """,
        VLLM_BATCH_INVARIANT="1",
    )
