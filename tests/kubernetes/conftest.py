"""The chart on a real cluster: that of `make test-cluster`, or the context that $SANDLOT_TEST_CONTEXT names."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from sandlot import Client

from tests.kubernetes.stack import Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/kubernetes" in str(item.path):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session", params=["gvisor", "runc"])
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Installed for one runtime after the other; uninstalled at the end."""
    context = os.environ.get("SANDLOT_TEST_CONTEXT")
    if not context and not os.environ.get("SANDLOT_TEST_CLUSTER"):
        pytest.skip("no cluster: `make test-cluster` makes one and runs these")
    kubeconfig = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    made = Stack(kubeconfig, context, "gvisor" if request.param == "gvisor" else "")
    try:
        made.install()
        yield made
    finally:
        if request.session.testsfailed:
            print(made.report())
        made.uninstall()


@pytest.fixture(scope="session")
def client(stack: Stack) -> Iterator[Client]:
    with Client(url=stack.url, api_key=stack.api_key) as made:
        yield made
