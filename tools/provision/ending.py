# SPDX-License-Identifier: Apache-2.0
"""How a program ends that has loaded the solver, or lets others work for it."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def _terminated(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def end_as_interrupted() -> None:
    """From here on SIGTERM raises KeyboardInterrupt, as SIGINT does."""
    signal.signal(signal.SIGTERM, _terminated)


def leave(code: int) -> NoReturn:
    """End the process with its output written, and no more than that: the solver's threads may
    crash an interpreter that shuts down in good order."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
