"""The claim protocol under races: many claims, two gateways, the same instances; no instance has two owners."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Phase, Slots
from sandlot_gateway.core.supply import SupplySettings
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.egress import Egress
from sandlot_gateway.engine.claims import Abandoned, Claimed, Claimer, ClaimRefused, NoSidecar
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.tokens import Tokens

from tests.gateway.machine import Machine, StubBackend
from tests.gateway.sidecars import StubSidecar, sidecars
from tests.waiting import until

TOKENS = Tokens(b"k" * 32)
TEMPLATE = Template(image="host")


class Replica:
    """One gateway's claiming half."""

    def __init__(self, machine: Machine, pool: HttpPool, *, max_waiting: int = 2000, **options: Any) -> None:
        self.discarded: list[Instance] = []
        self.outcomes: list[str] = []
        self.supply = Supply(
            backend=StubBackend(machine, tokens=TOKENS, webhook="unix:/nowhere"),
            slots=Slots(rank=first_come()),
            settings=SupplySettings(max_waiting=max_waiting),
        )
        self.claimer = Claimer(
            supply=self.supply,
            # Nothing here is silent: a machine that gives this process no time for 10 seconds is no lost answer.
            sidecars=Sidecars(pool, claim_timeout=60.0),
            tokens=TOKENS,
            discard=lambda instance, sandbox_id: self.discarded.append(instance),
            counted=self.outcomes.append,
            **options,
        )

    def offer(self, sidecar: StubSidecar, *, pool: str = "p") -> None:
        instance = Instance(sidecar.instance_id, TEMPLATE, sidecar.address, sidecar.token, pool)
        self.supply.heard_warm(instance, sidecar.generation)

    def phase(self, sidecar: StubSidecar) -> Phase | None:
        slot = self.supply.slots.get(sidecar.instance_id)
        return slot.phase if slot is not None else None

    async def create(self, *, egress: Egress | None = None) -> Sandbox:
        sandbox = new_sandbox(egress=egress)
        await self.claim(sandbox)
        return sandbox

    async def claim(self, sandbox: Sandbox, **secrets: str) -> Claimed:
        spec = sandbox.spec
        ticket = self.supply.ticket(template=spec.template(), tenant=sandbox.tenant, pool=spec.pool)
        return await self.claimer.claim(sandbox, secrets=secrets, ticket=ticket)


def new_sandbox(**spec: Any) -> Sandbox:
    now = time.time()
    return Sandbox(
        id=new_sandbox_id(now),
        tenant="t",
        spec=Spec(name="x", image="host", **spec),
        created_at=now,
        updated_at=now,
    )


@pytest.fixture
async def replica(machine: Machine) -> AsyncIterator[Callable[..., Replica]]:
    """`replica(sidecar, …)` knows these as ready."""
    pool = HttpPool()
    made: list[Replica] = []

    def make(*ready: StubSidecar, **options: Any) -> Replica:
        made.append(Replica(machine, pool, **options))
        for sidecar in ready:
            made[-1].offer(sidecar)
        return made[-1]

    yield make
    for one in made:
        await one.supply.close()
    await pool.close()


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


async def test_a_stale_generation_is_left_alone(machine: Machine) -> None:
    pool = HttpPool()
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (first, second):
        replica = Replica(machine, pool)
        replica.offer(first)
        replica.offer(second)
        first._reset(keep=False)
        sandbox = await replica.create()
        assert sandbox.instance_id == second.instance_id
        assert replica.outcomes == ["stale", "claimed"]
        assert replica.discarded == []
        await replica.supply.close()
    await pool.close()


async def test_an_ended_or_foreign_sidecar_is_discarded(machine: Machine) -> None:
    pool = HttpPool()
    async with sidecars(3, Path(machine.directory), token=TOKENS.instance) as (ended, foreign, good):
        replica = Replica(machine, pool)
        for sidecar in (ended, foreign, good):
            replica.offer(sidecar)
        ended.phase = "ended"
        foreign.token = "another"
        sandbox = await replica.create()
        assert sandbox.instance_id == good.instance_id
        assert {gone.id for gone in replica.discarded} == {ended.instance_id, foreign.instance_id}
        await replica.supply.close()
    await pool.close()


async def test_an_older_sidecar_is_not_trusted_with_a_policy(machine: Machine) -> None:
    pool = HttpPool()
    async with sidecars(2, Path(machine.directory), token=TOKENS.instance) as (older, good):
        replica = Replica(machine, pool)
        older.holds_policies = False
        replica.offer(older)
        replica.offer(good)
        sandbox = await replica.create(egress=Egress(allowlist=["example.org", "10.0.0.0/8:443"]))
        assert sandbox.instance_id == good.instance_id
        assert [gone.id for gone in replica.discarded] == [older.instance_id]
        assert replica.outcomes == ["gone", "claimed"]
        assert good.claim is not None
        assert good.claim["egress"] == {
            "policy": {"allowlist": ["example.org", "10.0.0.0/8:443"], "denylist": None},
            "allow": True,
            "rules": [["example.org", 0], [10 << 24, 8, 443, 443]],
        }
        await replica.supply.close()
    await pool.close()


async def test_who_finds_only_older_sidecars_for_a_policy_is_told_so(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (older,):
        older.holds_policies = False
        one = replica(older, max_failures=1)
        with pytest.raises(NoSidecar, match=r"^its sidecar is older, and holds no policy of a create$"):
            await one.create(egress=Egress(allowlist=["example.org"]))


async def test_a_claim_tells_the_sidecar_everything_of_the_sandbox(replica, machine: Machine) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        sidecar.generation = 3
        one = replica(sidecar)
        sandbox = new_sandbox(
            env={"A": "1"},
            network="none",
            timeout=60.0,
            idle_timeout=5.0,
            workdir="/w",
            start_command=["serve"],
            checkpoint="ck-1",
        )
        claimed = await one.claim(sandbox, KEY="secret")
        assert claimed.instance.id == sandbox.instance_id == sidecar.instance_id
        assert claimed.state == sidecar.state()
        assert claimed.token == TOKENS.sandbox(sidecar.instance_id, 3, sandbox.id)
        template = TEMPLATE
        assert sidecar.claim == {
            "sandbox_id": sandbox.id,
            "token": claimed.token,
            "tenant": "t",
            "env": {"A": "1"},
            "secrets": {"KEY": "secret"},
            # Of the instance, which another create of its template may have been made for.
            "limits": {
                "cpu": template.cpu,
                "memory": template.memory,
                "pids": template.pids,
                "disk": template.disk,
            },
            "network": "none",
            "egress": None,
            "timeout": 60.0,
            "idle_timeout": 5.0,
            "workdir": "/w",
            "start_command": ["serve"],
            "meta": sandbox.meta(),
            "restore": True,
            "generation": 3,
        }
        assert (sandbox.generation, sandbox.pool_hit, sandbox.notes) == (3, True, ["a stub"])
        assert one.outcomes == ["claimed"]


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
        one.offer(good)
        assert (await claiming).instance.id == good.instance_id
        assert one.claimer.position(sandbox.id) is None
        assert (sandbox.generation, sandbox.pool_hit) == (good.generation, False)
        assert 1.0 < sandbox.queued + sandbox.start - 2.0 < 60.0
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
        assert machine.launched_for[1] == loser.promise()
        one.offer(good)
        assert (await claiming).instance.id == good.instance_id
        one.claimer.cancel(later.id)
        with pytest.raises(asyncio.CancelledError):
            await waiting
    machine.hold_ready.set()


async def test_a_claim_that_every_sidecar_would_refuse_is_told_with_its_field(
    replica, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        refusal = {"error": "bad_request", "message": "no such directory", "field": "workdir"}
        sidecar.before_claim = lambda claim: (400, refusal) if claim["workdir"] else None
        one = replica(sidecar)
        with caplog.at_level(logging.INFO), pytest.raises(ClaimRefused, match="no such directory") as caught:
            await one.claim(new_sandbox(workdir="/none"))
        assert caught.value.field == "workdir"
        assert one.discarded == []
        assert one.phase(sidecar) is Phase.WARM
        told = [record for record in caplog.records if record.name == "sandlot_gateway.engine.claims"]
        assert [record.getMessage() for record in told] == [
            "a claim went to another instance: no such directory"
        ]
        assert (told[0].instance, told[0].outcome) == (sidecar.instance_id, "refused")
        assert (await one.create()).instance_id == sidecar.instance_id  # it is ready for the next one


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_sandbox_that_no_sidecar_answers_is_given_up_after_so_many(
    replica, machine: Machine, failures: int
) -> None:
    """Of these that another sandbox owns, or that are of another generation, none counts."""
    async with sidecars(5, Path(machine.directory), token=TOKENS.instance) as (taken, stale, *ended):
        one, other = replica(taken, stale, *ended, max_failures=failures), replica(taken)
        await other.create()
        stale._reset(keep=False)
        for sidecar in ended:
            sidecar.phase, sidecar.verdict = "ended", "oom"
        sandbox = new_sandbox()
        with pytest.raises(NoSidecar, match="ended"):
            await one.claim(sandbox)
        assert [gone.id for gone in one.discarded] == [sidecar.instance_id for sidecar in ended[:failures]]
        assert one.outcomes == ["taken", "stale"] + ["gone"] * failures
        assert sandbox.instance_id is None


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
        one.claimer._discard = lambda instance, sandbox_id: told.append((instance.id, sandbox_id))
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
        one.claimer._discard = lambda instance, sandbox_id: told.append((instance.id, sandbox_id))
        sandbox = await one.create()
        assert told == [(silent.instance_id, sandbox.id)]
        assert one.outcomes == ["uncertain", "claimed"]


async def test_a_claim_that_fails_in_an_unexpected_way_leaves_its_instance_to_nobody(
    replica: Callable[..., Replica], machine: Machine
) -> None:
    async with sidecars(1, Path(machine.directory), token=TOKENS.instance) as (sidecar,):
        one = replica(sidecar)
        with pytest.raises(UnicodeEncodeError):
            await one.claim(new_sandbox(env={"A": "\ud800"}))  # no text that could be sent
        assert [instance.id for instance in one.discarded] == [sidecar.instance_id]
        assert one.phase(sidecar) is Phase.ENDING
