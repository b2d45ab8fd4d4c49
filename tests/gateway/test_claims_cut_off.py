"""Claims that end early: the sandbox was deleted or cancelled, or the sidecar's answer is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.core.slot import Loss, Phase
from sandlot_gateway.engine.claim_failures import Abandoned, LostAtOnce
from sandlot_gateway.engine.claims import Claimed
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.machine import Machine
from tests.gateway.replica import TOKENS, Replica, new_sandbox
from tests.gateway.sidecars import StubSidecar, sidecars
from tests.waiting import until


async def test_a_sandbox_that_was_deleted_meanwhile_leaves_its_instance_to_the_next(
    replica, machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar)
        sandbox = new_sandbox()
        sandbox.finish("deleted", at=time.time())
        with pytest.raises(Abandoned, match=sandbox.id):
            await one.claim(sandbox)
        assert sidecar.claims_seen == 0
        assert (await one.create()).instance_id == sidecar.instance_id


async def test_a_sandbox_that_leaves_the_line_gets_no_instance(replica, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    one = replica()
    leaver, next_one = new_sandbox(), new_sandbox()
    tasks = [asyncio.create_task(one.claim(sandbox)) for sandbox in (leaver, next_one)]
    await until(lambda: one.claimer.position(next_one.id) == 2)
    one.claimer.cancel("another")
    one.claimer.cancel(leaver.id)
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert one.claimer.position(leaver.id) is None
    assert one.claimer.position(next_one.id) == 1
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one.offer(sidecar)
        assert (await tasks[1]).instance.id == sidecar.instance_id
    machine.hold_ready.set()


async def test_a_claim_that_was_cut_off_discards_its_instance(replica, machine: Machine) -> None:
    """Its sidecar may have accepted: the sandbox that it was for is named to whoever ends it."""
    told: list[tuple[str, str]] = []
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def before(_claim: dict[str, Any]) -> None:
        arrived.set()
        await go_on.wait()

    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sidecar.before_claim = before
        one = replica(sidecar)
        one.claimer._discard = lambda instance, sandbox_id, _: told.append((instance.id, sandbox_id))
        sandbox = new_sandbox()
        claiming = asyncio.create_task(one.claim(sandbox))
        await arrived.wait()
        assert one.phase(sidecar) is Phase.CLAIMING
        one.claimer.cancel(sandbox.id)  # too late: an instance is accepting it
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        assert told == [(sidecar.instance_id, sandbox.id)]
        assert one.phase(sidecar) is Phase.ENDING
        assert sandbox.instance_id is None
        go_on.set()


async def test_an_instance_whose_answer_is_lost_is_discarded_for_its_sandbox(
    replica, machine: Machine
) -> None:
    told: list[tuple[str, str]] = []
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (silent, good):
        silent.lose_answers = 2
        one = replica(silent, good)
        one.claimer._discard = lambda instance, sandbox_id, _: told.append((instance.id, sandbox_id))
        sandbox = await one.create()
        assert told == [(silent.instance_id, sandbox.id)]
        assert one.outcomes == ["uncertain", "claimed"]


@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
async def test_an_instance_whose_answer_is_lost_keeps_its_sandbox_where_it_is_used(
    replica: Callable[..., Replica], machine: Machine, used: bool
) -> None:
    """By a caller of another gateway, which has heard of the claim."""
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (first, second):
        first.lose_answers = 2
        first.hold_end = asyncio.Event()
        one = replica(first, second, alone=False)
        creating = asyncio.create_task(one.create())
        await until(lambda: first.ends_seen)
        assert one.phase(first) is Phase.ENDING
        first.used = used
        first.hold_end.set()
        sandbox = await creating
        kept = first if used else second
        assert sandbox.instance_id == kept.instance_id
        assert one.phase(kept) is Phase.OWNED
        assert kept.claim is not None
        assert kept.claim["sandbox_id"] == sandbox.id
        assert (first.phase, first.verdict) == (("claimed", None) if used else ("ended", "given_back"))
        assert one.outcomes == (["claimed"] if used else ["uncertain", "claimed"])
        assert [instance.id for instance in one.discarded] == ([] if used else [first.instance_id])


async def test_one_that_has_said_that_it_is_used_is_asked_until_it_answers(
    replica: Callable[..., Replica], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was ended, and another instance claimed, when it was silent for a moment after it had said so."""
    monkeypatch.setattr("sandlot_gateway.engine.claim_asks._PATIENCE", 0.0)
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (first, second):
        first.lose_answers = 6
        first.hold_end = asyncio.Event()
        one = replica(first, second, alone=False)
        creating = asyncio.create_task(one.create())
        await until(lambda: first.ends_seen)
        first.used = True
        first.hold_end.set()
        assert (await creating).instance_id == first.instance_id
        assert (first.phase, first.ends_seen, second.claims_seen) == ("claimed", 1, 0)
        assert one.outcomes == ["claimed"]


async def silent_in_use(first: StubSidecar, one: Replica, sandbox: Sandbox) -> asyncio.Task[Claimed]:
    """A claim whose sidecar has said that its sandbox is in use, and is silent since."""
    first.lose_answers = 1_000_000
    first.hold_end = asyncio.Event()
    creating = asyncio.create_task(one.claim(sandbox))
    await until(lambda: first.ends_seen)
    first.used = True
    first.hold_end.set()
    await until(lambda: first.claims_seen > 4)
    return creating


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ("its node is lost", "node_lost"),
        ("it says that it has ended", "deadline"),
        ("it has failed, without a verdict", "sandbox_lost"),
        ("it has been reset", "deleted"),
    ],
)
async def test_one_that_has_said_that_it_is_used_gets_no_other_instance_when_it_is_lost(
    replica: Callable[..., Replica], machine: Machine, how: str, verdict: str
) -> None:
    """Its create went on in an empty one, and what its callers had done in the first was lost without a word."""
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (first, second):
        one = replica(first, second, alone=False)
        creating = await silent_in_use(first, one, new_sandbox())
        if how == "its node is lost":
            one.supply.slots.lost(first.instance_id, Loss("node_lost", None))
        elif how == "it has been reset":
            first.claim, first.phase, first.generation = None, "warm", first.generation + 1
        else:
            first.phase, first.verdict = "ended", verdict if verdict == "deadline" else None
        with pytest.raises(LostAtOnce) as lost:
            await creating
        assert lost.value.loss.verdict == verdict
        assert (second.claims_seen, first.ends_seen, one.discarded) == (0, 1, [])
        assert one.phase(first) in (None, Phase.UNREPORTED)


async def test_one_whose_instance_is_in_use_by_another_sandbox_gets_its_own(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    """What has become of the other one is not its end."""
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (first, second):
        first.lose_answers = 2
        first.hold_end = asyncio.Event()
        one = replica(first, second, alone=False)
        creating = asyncio.create_task(one.create())
        await until(lambda: first.ends_seen)
        assert first.claim is not None
        first.claim, first.generation = {**first.claim, "sandbox_id": "another"}, 2
        first.hold_end.set()
        assert (await creating).instance_id == second.instance_id
        assert (first.phase, one.outcomes) == ("claimed", ["uncertain", "claimed"])


async def test_one_that_is_deleted_while_its_used_instance_is_silent_is_given_back_at_once(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (first,):
        one, sandbox = replica(first, alone=False), new_sandbox()
        creating = await silent_in_use(first, one, sandbox)
        sandbox.finish("deleted", at=time.time())
        await until(lambda: one.discarded)
        assert [instance.id for instance in one.discarded] == [first.instance_id]
        async with asyncio.timeout(30):  # else it waits for another slot
            with pytest.raises(Abandoned):
                await creating


async def test_a_claim_that_fails_in_an_unexpected_way_leaves_its_instance_to_nobody(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar)
        with pytest.raises(UnicodeEncodeError):
            await one.claim(new_sandbox(env={"A": "\ud800"}))  # no text that could be sent
        assert [instance.id for instance in one.discarded] == [sidecar.instance_id]
        assert one.phase(sidecar) is Phase.ENDING
