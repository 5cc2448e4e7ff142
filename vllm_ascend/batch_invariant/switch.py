# SPDX-License-Identifier: Apache-2.0
"""The switch of the batch-invariant mode: one environment variable, read at each call."""

import os

MODE_VARIABLE = "VLLM_BATCH_INVARIANT"
# Names of overrides to leave out, separated by commas. For controls only: a run that has to differ
# from the mode in one operator. The names are those of `overrides.declared()`.
LEFT_OUT_VARIABLE = "VLLM_BATCH_INVARIANT_DISABLE"


class ModeRefused(RuntimeError):
    """What was asked for cannot be run batch-invariantly; each line says what to change.

    Not a ValueError: pydantic, which builds vLLM's configuration, wraps those in lines of its own,
    and the last line that a user sees would be a link to pydantic's documentation.
    """


def enabled() -> bool:
    """Whether the mode is on: VLLM_BATCH_INVARIANT is an integer other than 0, as vLLM reads it.

    Raises ModeRefused where the variable is set to something that is no integer.
    """
    value = os.environ.get(MODE_VARIABLE, "") or "0"
    try:
        return bool(int(value))
    except ValueError:
        raise ModeRefused(f"{MODE_VARIABLE}={value!r}: expected 0 or 1") from None


def left_out() -> frozenset[str]:
    """Names of the overrides that this run leaves out; empty outside a control."""
    names = os.environ.get(LEFT_OUT_VARIABLE, "").split(",")
    return frozenset(name.strip() for name in names if name.strip())
