"""What reads the run of all profiles runs alone: its bounds are of a machine with nothing else to do."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and "whole" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.alone)
