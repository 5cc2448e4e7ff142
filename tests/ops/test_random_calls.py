# SPDX-License-Identifier: Apache-2.0
"""Random calls from Python give what float64 gives, infinities and NaN in their places."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from . import random_calls


def test_random_calls() -> None:
    random_calls.make_calls(seed=0, calls=300)


def test_a_lost_nan_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = random_calls.ops
    monkeypatch.setattr(
        random_calls,
        "ops",
        SimpleNamespace(
            npu_softmax_batch_invariant=lambda x, dim: real.npu_softmax_batch_invariant(
                x, dim
            ).nan_to_num(0.0),
            npu_log_softmax_batch_invariant=real.npu_log_softmax_batch_invariant,
        ),
    )
    with pytest.raises(AssertionError, match="softmax: NaN at another place"):
        for call in range(40):
            random_calls.softmax(random_calls.Draw(0, call))
