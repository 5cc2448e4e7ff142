# SPDX-License-Identifier: Apache-2.0
"""What the mode overrides, by what, and why; and the one function that installs it.

Each module of the mode declares its overrides; nothing is patched until `install()` is called,
which our worker does in every process that runs a model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from vllm_ascend.batch_invariant import operators
from vllm_ascend.batch_invariant.switch import LEFT_OUT_VARIABLE, ModeRefused, left_out


@dataclass(frozen=True)
class Override:
    """One operator of PyTorch or one hook of vLLM, and what the mode puts in its place."""

    name: str
    """Short name, which LEFT_OUT_VARIABLE takes: "aten::mm", "vllm::linear"."""
    target: str
    """What is replaced: an overload ("aten::mm") or the dotted name of a hook of vLLM."""
    by: tuple[str, ...]
    """The operators that compute it now, without their namespace where they are ours."""
    dispatch_key: str | None
    """The dispatcher key for an operator; None for a hook of vLLM."""
    reason: str
    """Why the stock one is not batch-invariant."""
    install: Callable[[], None] | None = None
    """Puts it in place; None where the platform class answers a question of vLLM instead."""
    leave_out: Callable[[], None] | None = None
    """What it takes for vLLM to run its own in the mode, where this override is left out."""


@cache
def declared() -> tuple[Override, ...]:
    """All overrides of the mode, in the order in which they are installed."""
    # Imported here: these modules import vLLM, and `enabled()` must stay cheap.
    from vllm_ascend.batch_invariant import aten, hooks, linear, moe, sampling

    return (
        *aten.OVERRIDES,
        *linear.OVERRIDES,
        *hooks.OVERRIDES,
        *moe.OVERRIDES,
        *sampling.OVERRIDES,
    )


def active() -> tuple[Override, ...]:
    """The overrides of this run: all that are declared but those a control leaves out.

    Raises ModeRefused where the control names an override that does not exist.
    """
    names = left_out()
    known = {override.name for override in declared()}
    if unknown := sorted(names - known):
        raise ModeRefused(
            f"{LEFT_OUT_VARIABLE}: no override is called {', '.join(unknown)}; "
            f"choose from {', '.join(sorted(known))}"
        )
    return tuple(override for override in declared() if override.name not in names)


def is_active(name: str) -> bool:
    """Whether the override `name` is part of this run."""
    return any(override.name == name for override in active())


_installed: list[Override] = []


def install() -> None:
    """Installs the overrides of this run in this process, once.

    Raises RuntimeError where the operator package is missing.
    """
    if _installed:
        return
    from vllm.logger import init_logger

    # vLLM configures the loggers below its own name only.
    logger = init_logger("vllm.ascend.batch_invariant")
    operators.require()
    overrides = active()
    for override in declared():
        act = override.install if override in overrides else override.leave_out
        if act is not None:
            act()
    _installed.extend(overrides)
    logger.info("Batch-invariant mode: %d overrides are installed.", len(overrides))
    if names := left_out():
        logger.warning(
            "%s leaves out %s: THE RESULTS OF THIS RUN ARE NOT BATCH-INVARIANT.",
            LEFT_OUT_VARIABLE,
            ", ".join(sorted(names)),
        )


def installed() -> tuple[Override, ...]:
    """The overrides that are in place in this process; empty before `install()`."""
    return tuple(_installed)
