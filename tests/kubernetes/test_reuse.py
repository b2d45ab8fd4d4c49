"""A pool that resets its pods: on real nodes, under gVisor and runc."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import resources, until
from tests.kubernetes.stack import IMAGE, Stack

POOL, SIZE, SANDBOXES = "reused", 2, 20
MEMORY = 384 << 20  # that no other pool has


@pytest.fixture
def pods(stack: Stack) -> Iterator[set[str]]:
    """The pods of a full pool."""
    template = {"image": IMAGE, "cpu": 1, "memory": MEMORY, "disk": 1 << 30}
    body = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "SandboxPool",
        "metadata": {"name": POOL, "namespace": stack.sandboxes},
        "spec": {"size": SIZE, "template": template, "reuse": {"policy": "tenant"}},
    }
    stack.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    try:
        until(
            lambda: stack.get("sandboxpool", POOL, "-n", stack.sandboxes)["status"].get("ready", 0) == SIZE,
            seconds=120,
        )
        yield pool_pods(stack)
    finally:
        stack.kubectl("delete", "sandboxpool", POOL, "-n", stack.sandboxes)


def pool_pods(stack: Stack) -> set[str]:
    listed = stack.get("pods", "-n", stack.sandboxes, "-l", f"sandlot.dev/pool={POOL}")["items"]
    return {pod["metadata"]["name"] for pod in listed}


def box_in(client: Client) -> Sandbox:
    return Sandbox.create(IMAGE, client=client, pool=POOL, cpu=1, memory=MEMORY, disk=1 << 30, wait=60)


def test_twenty_sandboxes_run_in_two_pods(stack: Stack, client: Client, pods: set[str]) -> None:
    made = set()
    for number in range(SANDBOXES):
        box = box_in(client)
        made.add(box.id)
        # A create that comes before the reset is done waits for it, and for no pod.
        assert box.info.timings["start"] == 0, box.info
        command = f"cat /left /tmp/left 2>/dev/null; echo {number} | tee /left /tmp/left; echo on"
        assert box.exec(command, timeout=30).stdout == f"{number}\non\n"
        box.delete()
        assert box.refresh().verdict == "deleted"
    assert pool_pods(stack) == pods
    told = {one["spec"].get("sandboxId") for one in resources(stack)}
    assert not told & made
