"""The half of a gateway that claims, as often as a test wants it, over the same sidecars."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sandlot_contract.new_ids import new_sandbox_id
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, by_size, by_template
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slot import Phase
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply_settings import SupplySettings
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.egress import Egress
from sandlot_gateway.engine.claims import Claimed, Claimer
from sandlot_gateway.engine.supply import Supply
from sandlot_gateway.engine.tickets import Need
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.tokens import Tokens

from tests.gateway.machine import Machine, StubBackend
from tests.gateway.sidecars import StubSidecar

TOKENS = Tokens(b"k" * 32)
TEMPLATE = Template(image="host")


class Replica:
    """One gateway's claiming half."""

    def __init__(
        self, machine: Machine, pool: HttpPool, *, max_waiting: int = 2000, alone: bool = True, **options: Any
    ) -> None:
        self.discarded: list[Instance] = []
        self.outcomes: list[str] = []
        backend: Any = StubBackend(machine, tokens=TOKENS, webhook="unix:/nowhere")
        self.supply = Supply(
            backend=backend,
            slots=Slots(rank=first_come(), kind=by_size if options.get("images") else by_template),
            settings=SupplySettings(max_waiting=max_waiting),
        )
        self.claimer = Claimer(
            supply=self.supply,
            # Nothing here is silent: a machine that gives this process no time for 10 seconds is no lost answer.
            sidecars=Sidecars(pool, claim_timeout=60.0),
            tokens=TOKENS,
            discard=lambda instance, *_: self.discarded.append(instance),
            alone=alone,
            counted=self.outcomes.append,
            **options,
        )

    def offer(self, sidecar: StubSidecar, *, pool: str = "p", node: str | None = None) -> None:
        address, token = sidecar.address, sidecar.token
        instance = Instance(sidecar.instance_id, TEMPLATE, address, token, pool, node=node)
        self.supply.report_warm(instance, sidecar.generation)

    def phase(self, sidecar: StubSidecar) -> Phase | None:
        slot = self.supply.slots.get(sidecar.instance_id)
        return slot.phase if slot is not None else None

    async def create(self, *, egress: Egress | None = None) -> Sandbox:
        sandbox = new_sandbox(egress=egress)
        await self.claim(sandbox)
        return sandbox

    async def claim(self, sandbox: Sandbox, **secrets: str) -> Claimed:
        spec = sandbox.spec
        ticket = self.supply.ticket(Need(spec.template(), sandbox.tenant, pool=spec.pool))
        return await self.claimer.claim(sandbox, secrets=secrets, ticket=ticket)


def new_sandbox(image: str = "host", **spec: Any) -> Sandbox:
    now = time.time()
    return Sandbox(
        id=new_sandbox_id(now),
        tenant="t",
        spec=Spec(name="x", image=image, **spec),
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
