"""The chart on a real cluster: that of `make test-cluster`, or the context that $SANDLOT_TEST_CONTEXT names."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from sandlot import Client

from tests.kubernetes.groups import GroupScheduling, rank
from tests.kubernetes.stack import Stack

# Seconds until a test hangs: with the fixtures that begin or end with it, which install and uninstall whole releases.
HANGS = 900
# What a killed node leaves broken spoils no other test.
LAST = ("test_outages.py", "test_live.py")


@pytest.hookimpl(trylast=True)  # after pytest's own order, which is by runtime
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/kubernetes" in str(item.path):
            item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("cluster"):
            # The item's own: of a module's, some tests here have those of the test on one machine that they repeat.
            said = item.get_closest_marker("timeout")
            seconds = max([HANGS, *(said.args if said else ())])
            item.add_marker(pytest.mark.timeout(seconds), append=False)
    items.sort(key=lambda item: (item.path.name in LAST, rank(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with the cluster's events and logs of its moment."""
    report = yield
    if report.failed:
        found = [getattr(value, "stack", value) for value in getattr(item, "funcargs", {}).values()]
        for stack in {each for each in found if isinstance(each, Stack)}:
            report.sections.append((f"cluster ({stack.release})", stack.report()))
    return report


@pytest.fixture(scope="session", params=["gvisor", "runc"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Installed for one runtime after the other; uninstalled at the end."""
    context = os.environ.get("SANDLOT_TEST_CONTEXT")
    if not context and not os.environ.get("SANDLOT_TEST_CLUSTER"):
        pytest.skip("no cluster: `make test-cluster` makes one and runs these")
    made = Stack.of_environment(runtime=request.param)
    try:
        made.install()
        yield made
    finally:
        made.uninstall()


@pytest.fixture(scope="session")
def client(stack: Stack) -> Iterator[Client]:
    with Client(url=stack.url, api_key=stack.api_key) as made:
        yield made
