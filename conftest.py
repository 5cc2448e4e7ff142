# SPDX-License-Identifier: Apache-2.0
"""Fast tests first: what starts the real vLLM comes later, what takes minutes last."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ("slow" in item.keywords, "vllm" in item.keywords))
