# SPDX-License-Identifier: Apache-2.0
"""Fast tests first: what starts the real vLLM comes later, what takes minutes last."""

import os
import signal
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    # A shell's background job ignores SIGINT and hands that on; then no installer that a test
    # starts could be interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # By marker: a parameter that is called so is a keyword too.
    items.sort(key=lambda item: [bool(item.get_closest_marker(name)) for name in ("slow", "vllm")])


@pytest.fixture(autouse=True)
def _environment_restored() -> Iterator[None]:
    """What a test leaves in the environment is gone before the next one.

    vLLM's CPU platform writes LD_PRELOAD into its own process when it checks a configuration; a
    program that a later test starts as another user would complain that it cannot open the file.
    """
    before = dict(os.environ)
    yield
    # pytest keeps the name of the running phase here, and removes it itself.
    own = "PYTEST_CURRENT_TEST"
    for name in os.environ.keys() - before.keys() - {own}:
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if name != own})
