"""The chart on a real cluster: that of `make test-cluster`, or the context that $SANDLOT_TEST_CONTEXT names."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from sandlot import Client

from tests.kubernetes.stack import Stack

# Seconds until a test hangs: with the fixtures that begin or end with it, which install and uninstall whole releases.
HANGS = 900
# Of tests that share a parallel worker. What takes longest begins first; the rest in the order of the files.
GROUPS = ("on gvisor", "on runc", "node agents", "prime")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests that need the same release, or what a node has once, share a worker."""
    if item.get_closest_marker("xdist_group") is not None or not isinstance(item, pytest.Function):
        return
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if "stack" in params:
        group = f"on {params['stack']}"
    elif "whole" in (*item.fixturenames, *params.values()):
        group = "prime"
    else:
        group = item.path.stem
    item.add_marker(pytest.mark.xdist_group(group))


def _rank(item: pytest.Item) -> tuple[bool, int]:
    """What a killed node leaves broken spoils no other test."""
    marked = item.get_closest_marker("xdist_group")
    group = marked.args[0] if marked is not None else None
    breaks = item.path.name in ("test_outages.py", "test_live.py")
    return breaks, GROUPS.index(group) if group in GROUPS else len(GROUPS)


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
    items.sort(key=_rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with the cluster's events and logs of its moment."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Stack):
                report.sections.append((f"cluster ({name})", value.report()))
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
