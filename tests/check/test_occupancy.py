# SPDX-License-Identifier: Apache-2.0
"""A batch that was run one request at a time is not called a batch."""

from __future__ import annotations

from vllm_ascend.batch_invariant.check.occupancy import Step, histogram, mixed, why_not_batched

TOGETHER = [Step(4, 4, 40, 1), *[Step(4, 0, 4, 1)] * 5]


def test_requests_that_share_their_steps_are_a_batch() -> None:
    assert why_not_batched(4, TOGETHER) is None


def test_late_arrivals_and_early_ends_are_still_a_batch() -> None:
    steps = [Step(2, 2, 9, 1), Step(4, 2, 11, 1), *[Step(4, 0, 4, 1)] * 5, Step(2, 0, 2, 1)]
    assert why_not_batched(4, steps) is None


def test_one_request_after_the_other_is_no_batch() -> None:
    steps = [Step(1, 1, 10, 1), *[Step(1, 0, 1, 1)] * 5] * 4
    why = why_not_batched(4, steps)
    assert why is not None and "more than 1 of 4" in why


def test_meeting_once_is_not_enough() -> None:
    steps = [Step(4, 4, 40, 1), *[Step(1, 0, 1, 1)] * 20]
    why = why_not_batched(4, steps)
    assert why is not None and "4 of 24" in why


def test_a_forward_pass_for_each_request_is_no_batch() -> None:
    why = why_not_batched(4, [Step(4, 4, 40, 4), *[Step(4, 0, 4, 4)] * 5])
    assert why is not None and "4 times" in why


def test_no_steps_at_all_is_no_batch() -> None:
    assert why_not_batched(2, []) is not None


def test_steps_are_counted_by_their_requests() -> None:
    steps = [*TOGETHER, Step(3, 1, 5, 1)]
    assert histogram(steps) == {3: 1, 4: 6}
    assert mixed(steps) == 1
