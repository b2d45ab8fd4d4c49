"""Keeps what was collected, before the markers select from it, for a test of what tools/test.sh gives to workers."""

from __future__ import annotations

import pytest

COLLECTED = pytest.StashKey[list[pytest.Item]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = list(items)
