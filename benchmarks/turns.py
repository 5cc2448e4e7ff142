# SPDX-License-Identifier: Apache-2.0
"""Timing of calls that take turns, so that what else the machine does meets all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

Call = Callable[[], object]


def seconds_in_turns(
    calls: Sequence[Call],
    turns: int,
    clock: Callable[[], float],
    summary: Callable[[list[float]], float] = statistics.median,
) -> list[float]:
    """One figure for each call, in the clock's seconds, from `turns` turns.

    The first turn, which fills caches and starts threads, counts for nothing.
    """
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 1):
        for call, times in zip(calls, seconds, strict=True):
            begin = clock()
            call()
            if turn > 0:
                times.append(clock() - begin)
    return [summary(times) for times in seconds]
