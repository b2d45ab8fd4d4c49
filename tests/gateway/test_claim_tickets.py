"""The place of a create in the queue: what its ticket tells the supply, and what a create that comes back keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.core.backend import StillPreparing, Unavailable
from sandlot_gateway.core.instances import Instance, PoolSpec, PoolStatus
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.supply_events import CannotStart, QueueFull

from tests.gateway.machine import Machine
from tests.gateway.replica import TEMPLATE, TOKENS, Replica, new_sandbox
from tests.gateway.sidecars import sidecars
from tests.gateway.test_claim_images import DOCUMENT, Images, prepared
from tests.waiting import until

Replicas = Callable[..., Replica]


@pytest.fixture(autouse=True)
async def no_start_gets_ready_before_the_end(machine: Machine) -> AsyncIterator[None]:
    machine.hold_ready = asyncio.Event()
    yield
    machine.hold_ready.set()


async def test_a_ticket_waits_behind_others_while_its_start_begins(
    replica: Replicas, machine: Machine
) -> None:
    one = replica()
    tickets = [one.claimer.ticket(new_sandbox()) for _ in range(2)]
    assert [ticket.position for ticket in tickets] == [1, 2]
    await until(lambda: machine.launched == 2)


async def test_a_ticket_that_is_not_for_now_begins_no_start_by_itself(
    replica: Replicas, machine: Machine
) -> None:
    one = replica()
    ticket = one.claimer.ticket(new_sandbox(), at_once=False)
    assert one.supply.starting == 0
    ticket.begin()
    assert one.supply.starting == 1
    await until(lambda: machine.launched == 1)


async def test_a_full_queue_takes_only_creates_that_come_again(replica: Replicas) -> None:
    one = replica(max_waiting=1)
    first = one.claimer.ticket(new_sandbox())
    with pytest.raises(QueueFull, match=r"tenant 't' has 1 of them, its creates without a run 1,"):
        one.claimer.ticket(new_sandbox())
    again = one.claimer.ticket(new_sandbox(), again=True)
    assert (again.position, first.position) == (1, 2)


async def test_only_a_patient_create_waits_while_the_backend_has_no_room(
    replica: Replicas, machine: Machine
) -> None:
    one = replica()
    machine.fail_launch = [Unavailable("no room", retry_after=60.0, refuse=True)]
    with pytest.raises(CannotStart, match="no room"):
        await one.claimer.ticket(new_sandbox()).wait()
    with pytest.raises(CannotStart, match="no room"):
        one.claimer.ticket(new_sandbox())
    assert one.claimer.ticket(new_sandbox(), patient=True).position == 1


async def test_the_runs_of_a_tenant_take_turns(replica: Replicas) -> None:
    one = replica()
    a, behind, b = (one.claimer.ticket(new_sandbox(run=run)) for run in "aab")
    assert [ticket.position for ticket in (a, b, behind)] == [1, 2, 3]


async def test_a_ticket_gets_a_slot_of_its_tenants_pool_and_size(replica: Replicas, machine: Machine) -> None:
    machine.pools["theirs"] = PoolSpec("theirs", TEMPLATE, 0, owner="u")
    machine.pools["own"] = PoolSpec("own", TEMPLATE, 0, owner="t")
    async with sidecars(3, Path(machine.directory), token=TOKENS.instance) as (theirs, shared, own):
        one = replica()
        for slot, pool in ((theirs, "theirs"), (shared, "p"), (own, "own")):
            one.offer(slot, pool=pool)
        named = await one.claimer.ticket(new_sandbox(pool="own")).wait()
        assert named.hold.instance.id == own.instance_id
        of_another_size = one.claimer.ticket(new_sandbox(cpu_cores=7.0))
        unnamed = await one.claimer.ticket(new_sandbox()).wait()
        assert unnamed.hold.instance.id == shared.instance_id
        of_another_size.cancel()


async def test_a_ticket_gets_a_slot_of_a_node_to_avoid_only_without_another(
    replica: Replicas, machine: Machine
) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (failed, good):
        one = replica(images=Images(prepared))
        one.offer(failed, node="a")
        one.offer(good, node="b")
        for expected in (good, failed):
            ticket = one.claimer.ticket(new_sandbox(image="another"), avoid=frozenset({"a"}))
            assert (await ticket.wait()).hold.instance.id == expected.instance_id


async def test_a_create_with_the_command_of_its_image_gets_no_slot_that_keeps_its_own(
    replica: Replicas, machine: Machine
) -> None:
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (keeps, takes):
        one = replica(images=Images(prepared))
        kept = Instance(keeps.instance_id, TEMPLATE, keeps.address, keeps.token, "p", keeps_image=True)
        one.supply.report_warm(kept, keeps.generation)
        one.offer(takes)
        for run_image_command, expected in ((True, takes), (False, keeps)):
            ticket = one.claimer.ticket(new_sandbox(run_image_command=run_image_command))
            assert (await ticket.wait()).hold.instance.id == expected.instance_id


async def test_a_create_that_waits_for_slots_says_why_there_are_none(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replica(images=Images(prepared))

    def failing(name: str, *, owner: str | None, message: str, template: Template) -> PoolStatus:
        return PoolStatus(PoolSpec(name, template, 1, owner=owner), starting=1, failures=1, message=message)

    small, large = Template(""), Template("", cpu=7.0)
    statuses = [
        failing("theirs", owner="u", message="full", template=small),
        failing("large", owner=None, message="too large", template=large),
        failing("own", owner="t", message="no node has room", template=small),
    ]
    monkeypatch.setattr(one.supply._backend, "pools", lambda: statuses)
    sandbox = new_sandbox()
    claim = asyncio.create_task(one.claim(sandbox))
    await until(lambda: one.claimer.position(sandbox.id) is not None)
    assert one.claimer.trouble(sandbox) == "pool 'own' has failed to start a slot: no node has room"
    failed = statuses.pop()
    assert one.claimer.trouble(sandbox) is None
    statuses.append(failed)
    one.claimer.cancel(sandbox.id)
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert one.claimer.trouble(sandbox) is None


async def test_a_create_whose_image_got_ready_comes_before_those_that_came_meanwhile(
    replica: Replicas, machine: Machine
) -> None:
    ready, waits = asyncio.Event(), asyncio.Event()

    async def finished() -> None:
        waits.set()
        await ready.wait()

    async def not_at_first(instance: Instance) -> dict[str, Any]:
        if not waits.is_set():
            raise StillPreparing(finished)
        return DOCUMENT

    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (slot,):
        one = replica(images=Images(not_at_first), max_waiting=1)
        one.offer(slot, node="a")
        slow, later = new_sandbox(image="slow"), new_sandbox(image="later")
        claims = [asyncio.create_task(one.claim(slow))]
        await waits.wait()
        await one.claim(new_sandbox(image="quick"))
        assert one.phase(slot) is Phase.OWNED
        claims.append(asyncio.create_task(one.claim(later)))
        await until(lambda: one.claimer.position(later.id) == 1)
        ready.set()
        await until(lambda: one.claimer.position(slow.id) is not None or claims[0].done())
        assert (one.claimer.position(slow.id), one.claimer.position(later.id)) == (1, 2)
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)


async def test_a_create_whose_root_was_not_built_comes_before_those_that_came_meanwhile(
    replica: Replicas, machine: Machine
) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def no_space_at_first(_claim: dict[str, Any]) -> tuple[int, dict[str, str]] | None:
        if arrived.is_set():
            return None
        arrived.set()
        await go_on.wait()
        return 400, {"error": "bad_request", "message": "no space left on device", "field": "image.lower"}

    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (slot,):
        slot.before_claim = no_space_at_first
        one = replica(slot, images=Images(prepared), max_waiting=1)
        refused, later = new_sandbox(), new_sandbox()
        claiming = asyncio.create_task(one.claim(refused))
        await arrived.wait()
        waiting = asyncio.create_task(one.claim(later))
        await until(lambda: one.claimer.position(later.id) == 1)
        go_on.set()
        assert (await claiming).instance.id == slot.instance_id
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
