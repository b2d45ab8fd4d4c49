"""The table of docs/failures.md on the cluster, under gVisor and runc: what each surface says of each end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sandlot import Client, Sandbox

from tests.kubernetes.boxes import pod_of
from tests.kubernetes.killing import evict, kill, own_cluster_only
from tests.kubernetes.prime.conftest import server_of
from tests.kubernetes.stack import Stack
from tests.prime.surfaces import SAME_COMMANDS, SLEEP, World, all_clients, boxes, differences, told_of
from tests.prime.verdicts import ROWS, Row
from tests.prime_rpc.support import Box

pytestmark = pytest.mark.slow

COMMANDS = {
    **SAME_COMMANDS,
    # No faster than it is measured under runc.
    "the disk's limit": "i=0; while head -c 4194304 /dev/zero > /var/tmp/$i; do i=$((i + 1)); sleep 0.02; done; exit 1",
}
# Where nobody refuses what is too much, the sidecar ends the command.
STRUCK = {"rest": "200, 137", "rest_clients": "result 137", "rpc": "-9", "rpc_clients": "result -9"}
OF_RUNTIME = {
    ("runc", "the disk's limit"): {"sdk": "`disk_full`, 137", **STRUCK},
    # gVisor refuses the process, or the runner sees first that there are too many.
    ("gvisor", "the process limit"): {
        "sdk": "`pids_limit`, 1 or `pids_limit`, 137",
        "rest": "200, 1 or 137",
        "rest_clients": "result 1 or result 137",
        "rpc": "1 or -9",
        "rpc_clients": "result 1 or result -9",
    },
}
DEADLINE = "the sandbox's deadline"
# Of processes that only one machine has by hand.
ELSEWHERE = ("the sandbox's init is killed", "the sandbox's executor is killed")


@pytest.fixture(scope="module")
def world(stack: Stack) -> Iterator[World]:
    own_cluster_only()
    with all_clients(server_of(stack, tcp=False)) as made:
        yield made


@pytest.fixture
def make_box(world: World) -> Iterator[Callable[..., Box]]:
    with boxes(world.server, cpu_cores=1, memory_gb=0.5, disk_size_gb=0.25, pids=256) as make:
        yield make


def strike(cause: str, stack: Stack, client: Client, box: Box) -> None:
    """What the row is about, now that the commands run."""
    pod = pod_of(stack, Sandbox.connect(box.sandbox_id, client=client))["metadata"]["name"]
    match cause:
        case "the sandbox is deleted":
            box.delete()
        case "the sidecar is killed":
            kill(stack.sandboxes, pod, "sidecar")
        case "the sandbox is evicted":
            evict(stack, pod)
        case _:
            assert cause == DEADLINE


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.cause not in ELSEWHERE], ids=lambda row: row.cause
)
async def test_every_surface_says_of_every_end_what_the_table_says(
    stack: Stack, client: Client, world: World, make_box: Callable[..., Box], row: Row
) -> None:
    if row.cause == DEADLINE and not stack.runtime:
        pytest.skip("takes a minute, in which no runtime has a part: runs under gVisor")
    row = replace(row, **OF_RUNTIME.get(("gvisor" if stack.runtime else "runc", row.cause), {}))
    # A minute is the shortest that a sandbox with a cold start lives to run the commands in.
    limit = {"timeout_seconds": 60} if row.cause == DEADLINE else {}
    box = await asyncio.to_thread(make_box, **limit)
    command = COMMANDS.get(row.cause)
    told = await told_of(
        world,
        box,
        row,
        command=command,
        timeout=2 if command == SLEEP else 100,
        strike=lambda: asyncio.to_thread(strike, row.cause, stack, client, box),
    )
    assert differences(row, told) == {}
