# SPDX-License-Identifier: Apache-2.0
"""One line of progress: rewritten in a terminal, printed now and then into a log."""

from __future__ import annotations

import time
from typing import TextIO

# Seconds between two lines where nothing can be rewritten.
LOG_INTERVAL = 10.0


class Progress:
    """Shows the latest of many short texts on `stream`."""

    def __init__(self, stream: TextIO, interval: float = LOG_INTERVAL) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._interval = interval
        self._width = 0
        self._printed = -interval

    def show(self, text: str, *, now: bool = False) -> None:
        """Shows `text`; into a log only when the last line is old enough, or `now`."""
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
            self._stream.flush()
        elif now or time.monotonic() - self._printed >= self._interval:
            self._stream.write(text + "\n")
            self._stream.flush()
            self._printed = time.monotonic()

    def clear(self) -> None:
        """Removes the line from a terminal, for other output."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
