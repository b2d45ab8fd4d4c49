"""A pool that says nothing of reuse resets its pods: on real nodes, under gVisor and runc."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sandlot import Client

from tests.kubernetes.boxes import resources
from tests.kubernetes.pools import RECORDED_AFTER, OwnPool, own_pool
from tests.kubernetes.stack import Stack

SIZE, SANDBOXES = 2, 20


@pytest.fixture
def pool(stack: Stack) -> Iterator[OwnPool]:
    with own_pool(stack, "reused", size=SIZE) as made:
        yield made


def test_twenty_sandboxes_run_in_two_pods(stack: Stack, client: Client, pool: OwnPool) -> None:
    before = pool.pods()
    made: set[str] = set()
    long: set[str] = set()  # that may have lived long enough for a record, on a machine that was slow
    for number in range(SANDBOXES):
        waits_for_a_reset = number % 2 == 1
        if not waits_for_a_reset:
            pool.full()
        began = time.monotonic()
        box = pool.create(client)
        made.add(box.id)
        if waits_for_a_reset:
            assert box.info.timings["start"] == 0 or long, box.info
        else:
            assert box.info.pool_hit, box.info
        command = f"cat /left /tmp/left 2>/dev/null; echo {number} | tee /left /tmp/left; echo on"
        assert box.exec(command, timeout=30).stdout == f"{number}\non\n"
        box.delete()
        if time.monotonic() - began > RECORDED_AFTER:
            long.add(box.id)
        assert box.refresh().verdict == "deleted"
    pods = pool.pods()
    recorded = made & {one["spec"].get("sandboxId") for one in resources(stack)}
    assert recorded <= long
    assert pods == before or recorded
