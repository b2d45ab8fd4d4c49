"""Charges what the garbage collector finds to the test that left it: unclosed sockets, files, loops and transports.

Python warns of them when it frees them. Much is in cycles, which it would free during a later test.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    # The tests' objects all stay, so looking for garbage among them is a tenth of the time that finding tests takes.
    gc.disable()


def pytest_collection_finish() -> None:
    # What the imports made stays for the whole run; a collection after each test would go through all of it.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        gc.collect()
        # Pytest has looked before this collection.
        item.config.pluginmanager.get_plugin("unraisableexception").pytest_runtest_teardown(item)
