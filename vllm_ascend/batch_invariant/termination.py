# SPDX-License-Identifier: Apache-2.0
"""SIGTERM as an exception, so that a command's engines and scratch files are removed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises SystemExit(143), and what stood before is restored at the end."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
