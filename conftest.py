# SPDX-License-Identifier: Apache-2.0
"""Fast tests first: what starts the real vLLM comes later, what takes minutes last."""

import signal

import pytest


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT and hands that on; then no installer that a test
    # starts could be interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ("slow" in item.keywords, "vllm" in item.keywords))
