# SPDX-License-Identifier: Apache-2.0
"""Sees the calls that go through PyTorch's dispatcher, also inside overrides.

A `TorchDispatchMode` sees `aten::` operators, the C++ operators of vLLM (`_C`) and ours, but is
switched off while it handles a call, so it misses what an override or a custom operator calls in
turn. This one stays on for those: it hands the call straight to the kernel of the device's key,
below itself, and sees the calls that this kernel makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class Call:
    """One call of an operator, with the calls that its kernel made where those were wanted."""

    operator: str
    """ "aten::mm", with the overload unless it is "default": "aten::add.Tensor"."""
    floats: bool
    """Whether a floating-point tensor went in or came out."""
    tensors_in: bool
    view: bool
    """Whether the outputs alias the inputs and nothing is written, so the schema."""
    random: bool
    """Whether the operator draws random numbers."""
    generator: bool
    """Whether it was given a generator of its own."""
    alpha: bool
    """Whether it was given a factor `alpha` other than 1."""
    accumulates: bool
    """Whether it was asked to add to what is there."""
    composite: bool = False
    """Whether its kernel is nothing but calls of other operators, on every device."""
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


def _is_composite(func: Any) -> bool:
    # With gradients off such an operator arrives whole; with gradients on, as the calls inside it.
    # Extensions register kernels that compute by themselves under this key too.
    return func.namespace == "aten" and bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


def _number_for_tensor(schema: Any, given: dict[str, Any]) -> bool:
    # `redispatch` does not turn a number into the tensor that the schema asks for.
    return any(
        isinstance(given.get(argument.name), int | float | complex)
        for argument in schema.arguments
        if str(argument.type) == "Tensor"
    )


def _floats(values: Any) -> bool:
    return any(
        isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
        for leaf in tree_leaves(values)
    )


class OperatorTrace(TorchDispatchMode):
    """While entered, gives each finished outermost call to `consume(phase, call)`."""

    def __init__(
        self,
        device_key: str,
        look_inside: Callable[[str], bool],
        consume: Callable[[str, Call], None],
    ) -> None:
        """`device_key` is the dispatcher's key of the model's device, e.g. "CPU".

        `look_inside(operator)` says whether the calls that its kernel makes are wanted too.
        """
        super().__init__()
        self.phase = ""
        self._keys = DispatchKeySet(getattr(DispatchKey, device_key))
        self._look_inside = look_inside
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
            composite=_is_composite(func) and not _number_for_tensor(func._schema, given),
        )
        self._open.append(call)
        try:
            if call.composite or self._look_inside(call.operator):
                with self:
                    result = func.redispatch(self._keys, *args, **kwargs)
            else:
                result = func(*args, **kwargs)
        finally:
            self._open.pop()
        call.floats = call.floats or _floats(result)
        if self._open:
            self._open[-1].calls.append(call)
        else:
            self._consume(self.phase, call)
        return result
