# SPDX-License-Identifier: Apache-2.0
"""Sees every call that goes through PyTorch's dispatcher, at any depth.

A `TorchDispatchMode` sees `aten::` operators, the C++ operators of vLLM (`_C`) and ours, but is
switched off while it handles a call, so it misses what an override or a custom operator calls in
turn. This one stays on: it hands the call straight to the kernel of the device's key, below itself,
and sees the calls that this kernel makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class Call:
    """One call of an operator, with the calls that its kernel made."""

    operator: str
    """ "aten::mm", with the overload unless it is "default": "aten::add.Tensor"."""
    floats: bool
    """Whether a floating-point tensor went in or came out."""
    tensors_in: bool
    view: bool
    """Whether the schema says that the outputs alias the inputs and nothing is written."""
    random: bool
    """Whether the operator draws random numbers."""
    generator: bool
    """Whether it was given a generator of its own."""
    alpha: bool
    """Whether it was given a factor `alpha` other than 1."""
    accumulates: bool
    """Whether it was asked to add to what is there."""
    calls: list[Call] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The name without overload and in-place underscore: "aten::add"."""
        name = self.operator.split(".")[0]
        namespace, _, function = name.partition("::")
        inplace = function.endswith("_") and not function.endswith("__")
        return f"{namespace}::{function.removesuffix('_') if inplace else function}"

    def below(self) -> Iterator[Call]:
        """The calls inside, at any depth."""
        for call in self.calls:
            yield call
            yield from call.below()


def operator_name(overload: Any) -> str:
    """torch's spelling: "aten::mm", "aten::add.Tensor"."""
    return str(overload._schema.name) + (
        f".{overload._schema.overload_name}" if overload._schema.overload_name else ""
    )


def _is_view(schema: Any) -> bool:
    returns = schema.returns
    return bool(returns) and all(r.alias_info and not r.alias_info.is_write for r in returns)


def _floats(values: Any) -> bool:
    return any(
        isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
        for leaf in tree_leaves(values)
    )


class OperatorTrace(TorchDispatchMode):
    """While entered, gives each finished outermost call to `consume(phase, call)`."""

    def __init__(self, device_key: str, consume: Callable[[str, Call], None]) -> None:
        """`device_key` is the dispatcher's key of the model's device, e.g. "CPU"."""
        super().__init__()
        self.phase = ""
        self._keys = DispatchKeySet(getattr(DispatchKey, device_key))
        self._consume = consume
        self._open: list[Call] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        call = Call(
            operator=operator_name(func),
            floats=_floats((args, kwargs)),
            tensors_in=any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs))),
            view=_is_view(func._schema),
            random=torch.Tag.nondeterministic_seeded in func.tags,
            generator=given.get("generator") is not None,
            alpha=given.get("alpha", 1) != 1,
            accumulates=bool(given.get("accumulate")) or given.get("reduce") is not None,
        )
        self._open.append(call)
        try:
            with self:
                result = func.redispatch(self._keys, *args, **kwargs)
        finally:
            self._open.pop()
        call.floats = call.floats or _floats(result)
        if self._open:
            self._open[-1].calls.append(call)
        else:
            self._consume(self.phase, call)
        return result


def count(calls: Sequence[Call]) -> Counter[str]:
    """How often each operator was called, at any depth."""
    counter: Counter[str] = Counter()
    for call in calls:
        counter[call.operator] += 1
        counter.update(inner.operator for inner in call.below())
    return counter
