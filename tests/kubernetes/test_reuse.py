"""A pool that resets its pods: on real nodes, under gVisor and runc."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import resources, until
from tests.kubernetes.killing import pool_is_warm_everywhere
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
        until_all_are_ready(stack)
        yield pool_pods(stack)
    finally:
        stack.kubectl("delete", "sandboxpool", POOL, "-n", stack.sandboxes)


def until_all_are_ready(stack: Stack) -> None:
    """Waits until both slots are ready at every gateway: a create that comes before a reset is done is no hit."""
    until(lambda: pool_is_warm_everywhere(stack, POOL, size=SIZE), seconds=120)


def pool_pods(stack: Stack) -> set[str]:
    listed = stack.get("pods", "-n", stack.sandboxes, "-l", f"sandlot.dev/pool={POOL}")["items"]
    return {pod["metadata"]["name"] for pod in listed}


def box_in(client: Client) -> Sandbox:
    return Sandbox.create(IMAGE, client=client, pool=POOL, cpu=1, memory=MEMORY, disk=1 << 30, wait=60)


def test_twenty_sandboxes_run_in_two_pods(stack: Stack, client: Client, pods: set[str]) -> None:
    made = set()
    for number in range(SANDBOXES):
        waits_for_a_reset = number % 2 == 1
        if not waits_for_a_reset:
            until_all_are_ready(stack)
        box = box_in(client)
        made.add(box.id)
        if waits_for_a_reset:
            assert box.info.timings["start"] == 0, box.info
        else:
            assert box.info.pool_hit, box.info
        command = f"cat /left /tmp/left 2>/dev/null; echo {number} | tee /left /tmp/left; echo on"
        assert box.exec(command, timeout=30).stdout == f"{number}\non\n"
        box.delete()
        assert box.refresh().verdict == "deleted"
    assert pool_pods(stack) == pods
    told = {one["spec"].get("sandboxId") for one in resources(stack)}
    assert not told & made
