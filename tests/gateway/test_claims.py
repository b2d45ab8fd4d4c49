"""The claim protocol under races: many claims, two gateways, the same instances; no instance has two owners."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from sandlot_gateway.backends.base import Instance, Template
from sandlot_gateway.claims import Claimer
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.egress import Egress
from sandlot_gateway.ready import ReadyQueue, first_come
from sandlot_gateway.sandboxes import Sandbox, Spec, new_id
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.supply import Supply
from sandlot_gateway.tokens import Tokens

from tests.gateway.machine import Machine, StubBackend
from tests.gateway.sidecars import StubSidecar, sidecars

TOKENS = Tokens(b"k" * 32)
TEMPLATE = Template(image="host")


class Replica:
    """One gateway's claiming half."""

    def __init__(self, machine: Machine, pool: HttpPool) -> None:
        self.discarded: list[Instance] = []
        self.outcomes: list[str] = []
        self.supply = Supply(
            backend=StubBackend(machine, tokens=TOKENS, webhook="unix:/nowhere"),
            ready=ReadyQueue(rank=first_come()),
        )
        self.claimer = Claimer(
            supply=self.supply,
            sidecars=Sidecars(pool),
            tokens=TOKENS,
            discard=lambda instance, sandbox_id: self.discarded.append(instance),
            counted=self.outcomes.append,
        )

    def offer(self, sidecar: StubSidecar) -> None:
        self.supply.offer(
            Instance(sidecar.instance_id, TEMPLATE, sidecar.address, sidecar.token, sidecar.generation, "p")
        )

    async def create(self, *, egress: Egress | None = None) -> Sandbox:
        now = time.time()
        spec = Spec(name="x", image="host", egress=egress)
        sandbox = Sandbox(id=new_id(now), tenant="t", spec=spec, created_at=now, updated_at=now)
        ticket = self.supply.ticket(template=spec.template(), tenant="t")
        await self.claimer.claim(sandbox, secrets={}, ticket=ticket)
        return sandbox


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
        assert good.claim is not None
        assert good.claim["egress"] == {
            "policy": {"allowlist": ["example.org", "10.0.0.0/8:443"], "denylist": None},
            "allow": True,
            "rules": [["example.org", 0], [10 << 24, 8, 443, 443]],
        }
        await replica.supply.close()
    await pool.close()
