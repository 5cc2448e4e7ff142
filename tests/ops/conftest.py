# SPDX-License-Identifier: Apache-2.0
"""Stages 1 and 2 as ./scripts/test installs them; nothing is skipped where they are missing."""

from __future__ import annotations

from collections.abc import Iterator

import batch_invariant_ops
import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def stage_one() -> batch_invariant_ops.Library:
    return batch_invariant_ops.library()


@pytest.fixture(autouse=True)
def thread_count() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
