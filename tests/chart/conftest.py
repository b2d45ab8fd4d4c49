"""The chart rendered with its defaults and with everything on, once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.programs import directory
from tests.chart.release import release
from tests.chart.render import ALL, Resource, render
from tests.kube.apiserver import apiserver

__all__ = ["apiserver", "directory", "release"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nearly all of them render the chart, with Helm."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.programs)


@pytest.fixture(scope="session")
def defaults() -> list[Resource]:
    return render()


@pytest.fixture(scope="session")
def everything() -> list[Resource]:
    return render(ALL)


@pytest.fixture(params=["defaults", "everything"])
def resources(request: pytest.FixtureRequest) -> list[Resource]:
    return request.getfixturevalue(request.param)
