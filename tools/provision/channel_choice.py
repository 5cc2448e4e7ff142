# SPDX-License-Identifier: Apache-2.0
"""Where third-party packages come from: conda-forge where it can be reached, else the stand-in."""

from __future__ import annotations

import asyncio
import warnings

from rattler import Gateway

CHOICES = ("auto", "standin", "conda-forge")
CONDA_FORGE = "conda-forge"
# A channel that answers at all does so faster; a firewall that drops packets never does.
_PATIENCE_SECONDS = 15.0
# A package of a few kilobytes of index.
_PROBE = "python_abi"


async def _answers(channel: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = await Gateway().query([channel], ["noarch"], [_PROBE], recursive=False)
    return any(records for records in found)


def reachable(channel: str = CONDA_FORGE, patience: float = _PATIENCE_SECONDS) -> bool:
    """Whether the channel, by whatever mirror the user's configuration says, lists a package."""
    try:
        return asyncio.run(asyncio.wait_for(_answers(channel), patience))
    except Exception:
        # Refused, unknown host, not authorised, too slow: each means "not from here".
        return False


def choose(option: str) -> str:
    """``standin`` or ``conda-forge``, as the option says or as the network answers."""
    if option != "auto":
        return option
    return CONDA_FORGE if reachable() else "standin"
