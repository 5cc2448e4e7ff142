# SPDX-License-Identifier: Apache-2.0
"""What is loaded in this process: the overrides and the operator library, with their versions."""

from __future__ import annotations

from importlib import metadata
from typing import Any

# Distributions whose versions decide about bits.
DISTRIBUTIONS = ("vllm", "vllm-ascend", "batch_invariant_ops", "torch")


def versions() -> dict[str, str | None]:
    """Installed version of each of DISTRIBUTIONS; None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def installed_overrides() -> list[dict[str, Any]]:
    """The overrides that are in place in this process: name, target, by, reason."""
    from vllm_ascend.batch_invariant.overrides import installed

    return [
        {"name": o.name, "target": o.target, "by": list(o.by), "reason": o.reason}
        for o in installed()
    ]


def describe_operators() -> dict[str, Any] | None:
    """The operator library that stage 2 loaded: path, version, isa, abi; None where there is none.

    Loads nothing that is not loaded: a stock run has no operators.
    """
    import sys

    if "batch_invariant_ops" not in sys.modules:
        return None
    library = sys.modules["batch_invariant_ops"].library()
    return {
        "path": str(library.path),
        "version": library.version,
        "isa": library.isa,
        "abi": library.abi,
    }
