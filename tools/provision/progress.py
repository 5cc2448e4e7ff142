# SPDX-License-Identifier: Apache-2.0
"""Tell a person what is going on: one line a step, with the time since the start."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Lines of the form ``[  12.3 s] channel      torch 2.13.0``.

    started   ``time.time()`` of the beginning, so that a process that carries on for another one
              counts from the same moment
    """

    def __init__(self, started: float | None = None, out: TextIO | None = None) -> None:
        self.started = time.time() if started is None else started
        self._out = out or sys.stderr

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.time() - self.started

    def __call__(self, stage: str, message: str) -> None:
        """Print one line."""
        print(f"[{self.elapsed:6.1f} s] {stage:<9} {message}", file=self._out, flush=True)
