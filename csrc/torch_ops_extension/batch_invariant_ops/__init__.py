# SPDX-License-Identifier: Apache-2.0
"""Batch-invariant operators: importing this package registers `torch.ops.batch_invariant_ops`.

The operators' kernels are in the operator library of stage 1, which is found when the first of them
is called, not when the package is imported; `library()` says which one that is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch

__all__ = ["Library", "library"]


class Library(NamedTuple):
    """The operator library in use."""

    path: Path
    version: str
    isa: str
    abi: int


def library() -> Library:
    """The operator library of stage 1, loaded now if no operator was called yet.

    Raises RuntimeError, naming the package to install and the places searched, where there is none
    that can be used.
    """
    path, version, isa, abi = torch.ops.batch_invariant_ops._library()
    return Library(Path(path), version, isa, int(abi))


def _register() -> None:
    registrations = Path(__file__).resolve().parent / "lib" / "libbatch_invariant_ops.so"
    try:
        torch.ops.load_library(str(registrations))
    except OSError as error:
        raise ImportError(
            f"{registrations} does not load beside torch {torch.__version__}: install the "
            f"batch_invariant_ops that was built for it ({error})"
        ) from error
    torch.ops.batch_invariant_ops._set_prefix(sys.prefix)


_register()
