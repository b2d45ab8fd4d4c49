"""Claims that race for the same instances: none gets two owners, and a loser gets the next instance."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.data.pool import HttpPool

from tests.gateway.machine import Machine
from tests.gateway.replica import TEMPLATE, TOKENS, Replica, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.waiting import until


async def test_two_replicas_never_share_an_instance(tmp_path: Path, machine: Machine) -> None:
    chance = random.Random(7)
    machine.hold_ready = asyncio.Event()  # nothing new gets ready: only the shared instances are there
    owners: dict[tuple[str, int], str] = {}
    claims = 0
    pool = HttpPool()
    async with sidecars(40, Path(machine.directory), token=TOKENS.instance) as shared:
        for sidecar in shared:
            sidecar.lose_answers = chance.random() < 0.2
        for _ in range(50):
            replicas = [Replica(machine, pool) for _ in range(2)]
            for replica in replicas:
                for sidecar in chance.sample(shared, len(shared)):
                    replica.offer(sidecar)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(replicas[n % 2].create()) for n in range(len(shared))]
            for task in tasks:
                sandbox = task.result()
                key = (sandbox.instance_id or "", sandbox.generation)
                assert key not in owners, "two sandboxes own one instance"
                owners[key] = sandbox.id
            for sidecar in shared:
                assert sidecar.owners[-1] == owners[sidecar.instance_id, sidecar.generation]
                assert len(sidecar.owners) == sidecar.generation
                claims += sidecar.claims_seen
                sidecar.claims_seen = 0
                sidecar._reset(keep=False)
                sidecar.lose_answers = chance.random() < 0.1
            for replica in replicas:
                assert replica.discarded == []
                await replica.supply.close()
        await pool.close()
    assert len(owners) == 2000
    assert claims > 2500, "the replicas did not race"


async def test_what_a_sandbox_waited_for_is_added_up(replica, machine: Machine) -> None:
    """Of two instances the first is lost to another owner; the times of both count."""
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (lost, good):
        one, other = replica(lost), replica(lost)
        await other.create()
        sandbox = new_sandbox()
        sandbox.queued, sandbox.start, sandbox.claim = 1.0, 2.0, 4.0
        claiming = asyncio.create_task(one.claim(sandbox))
        await until(lambda: one.outcomes == ["taken"])
        assert one.claimer.position(sandbox.id) == 1
        assert one.claimer.position("another") is None
        # The supply reads the loop's clock, which counts milliseconds and stands still for one turn of the loop.
        await asyncio.sleep(0.1)
        one.offer(good)
        assert (await claiming).instance.id == good.instance_id
        assert one.claimer.position(sandbox.id) is None
        assert (sandbox.generation, sandbox.pool_hit) == (good.generation, False)
        assert 0.099 < sandbox.queued + sandbox.start - 3.0 < 60.0
        assert sandbox.queued >= 1.0
        assert sandbox.start >= 2.0
        assert 4.0 < sandbox.claim < 60.0
        assert one.discarded == []


async def test_who_lost_its_instance_takes_the_next_of_the_pool_that_it_asked_for(
    replica, machine: Machine
) -> None:
    """Also one that is its tenant's alone, and although another pool's has been ready for longer."""
    machine.pools["own"] = PoolSpec("own", TEMPLATE, 0, owner="t")
    async with sidecars(3, Path(machine.directory), token=TOKENS.instance) as (lost, shared, good):
        one, other = replica(), replica(lost)
        await other.create()
        one.offer(lost, pool="own")
        one.offer(shared)
        one.offer(good, pool="own")
        sandbox = new_sandbox(pool="own")
        await one.claim(sandbox)
        assert one.outcomes == ["taken", "claimed"]
        assert sandbox.instance_id == good.instance_id


async def test_who_lost_its_instance_goes_to_the_front_of_a_line_that_is_full(
    replica, machine: Machine
) -> None:
    machine.hold_ready = asyncio.Event()
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def taken(_claim: dict[str, Any]) -> tuple[int, dict[str, str]]:
        arrived.set()
        await go_on.wait()
        return 409, {"error": "already_claimed"}

    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (lost, good):
        lost.before_claim = taken
        one = replica(lost, max_waiting=1)
        loser, later = new_sandbox(), new_sandbox()
        claiming = asyncio.create_task(one.claim(loser))
        await arrived.wait()
        waiting = asyncio.create_task(one.claim(later))
        await until(lambda: one.claimer.position(later.id) == 1)
        go_on.set()
        await until(lambda: machine.launched == 2)
        assert (one.claimer.position(loser.id), one.claimer.position(later.id)) == (1, 2)
        # The backend notes of the second start whom it is for, so that other gateways know of the sandbox.
        assert machine.launched_for[1] == loser.pending_create()
        one.offer(good)
        assert (await claiming).instance.id == good.instance_id
        one.claimer.cancel(later.id)
        with pytest.raises(asyncio.CancelledError):
            await waiting
    machine.hold_ready.set()
