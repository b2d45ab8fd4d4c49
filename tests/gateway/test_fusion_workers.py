"""Who gets a tenant's sandboxes for code where its quota is too small for all, and while the gateway stops."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.engine.errors import ResetCode, ResetFailed
from sandlot_gateway.fusion.groups import CannotCreate, NoWorker
from sandlot_gateway.fusion.workers import Workers
from sandlot_gateway.fusion_option import Place
from sandlot_gateway.keys import Tenant
from sandlot_gateway.sandboxes import Sandbox, Spec

from tests.waiting import until

ALPHA = Tenant("alpha")
ONE, OTHER, THIRD = Place(image="one"), Place(image="other"), Place(image="third")


class _Tenant:
    """A tenant's live sandboxes, at all gateways, and how many it may have."""

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.live: list[Sandbox] = []
        self.creates = 0
        self.most = 0  # live at once

    def gateway(self, *, limit: int = 4, idle_at_quota: float = 3600.0) -> Workers:
        return Workers(
            create=self._create,
            reset=self._reset,
            delete=self.live.remove,
            has_room=lambda _who, _sandbox: len(self.live) < self.quota,
            limit=limit,
            idle=3600.0,
            idle_at_quota=idle_at_quota,
        )

    async def _create(self, who: Tenant, place: Place) -> Sandbox:
        self.creates += 1
        if len(self.live) >= self.quota:
            raise CannotCreate("quota sandboxes", retry_after=3600.0, over_quota=True)
        now = float(self.creates)
        spec = Spec(name="", image=place.image or "")
        sandbox = Sandbox(
            id=SandboxId(f"sandbox-{self.creates}"),
            tenant=who.name,
            spec=spec,
            created_at=now,
            updated_at=now,
        )
        sandbox.status = Status.RUNNING
        self.live.append(sandbox)
        self.most = max(self.most, len(self.live))
        await asyncio.sleep(0)
        return sandbox

    async def _reset(self, sandbox: Sandbox) -> None:
        await asyncio.sleep(0)
        if sandbox.status is not Status.RUNNING:
            raise ResetFailed("it has ended", code=ResetCode.NOT_RUNNING)

    def images(self) -> set[str]:
        return {sandbox.spec.image for sandbox in self.live}


@asynccontextmanager
async def closing(*gateways: Workers):
    try:
        yield
    finally:
        for gateway in gateways:
            await gateway.close(timeout=0.0)


async def run(gateway: Workers, place: Place, *, timeout: float = 90.0) -> None:
    async with gateway.lease(ALPHA, place, timeout=timeout):
        await asyncio.sleep(0)


async def test_an_idle_sandbox_gives_way_to_code_of_another_place() -> None:
    tenant = _Tenant(2)
    gateway = tenant.gateway()
    async with closing(gateway):
        await asyncio.gather(run(gateway, ONE), run(gateway, ONE))
        await run(gateway, OTHER)
        assert tenant.images() == {"one", "other"}
        assert tenant.creates == 4  # the refused one, too


async def test_code_of_three_places_that_never_rests_shares_one_sandbox() -> None:
    tenant = _Tenant(1)
    gateway = tenant.gateway()
    ran = {ONE: 0, OTHER: 0, THIRD: 0}

    async def caller(place: Place) -> None:
        while min(ran.values()) < 3:
            await run(gateway, place)
            ran[place] += 1

    async with closing(gateway):
        async with asyncio.timeout(90):
            await asyncio.gather(*(caller(place) for place in 2 * tuple(ran)))


async def test_further_requests_of_a_place_leave_it_its_turn() -> None:
    tenant = _Tenant(1)
    gateway = tenant.gateway()
    served: list[Place] = []

    async def caller(place: Place) -> None:
        async with gateway.lease(ALPHA, place, timeout=90):
            served.append(place)

    async with closing(gateway):
        async with gateway.lease(ALPHA, ONE, timeout=90):
            callers: list[asyncio.Task[None]] = []
            for place in (OTHER, OTHER, ONE):
                before = tenant.creates
                callers.append(asyncio.create_task(caller(place)))
                await until(lambda: tenant.creates > before)  # noqa: B023
        await asyncio.gather(*callers)
    assert served[0] == OTHER


async def test_an_idle_sandbox_leaves_its_room_to_another_gateway_if_the_quota_is_used_up() -> None:
    tenant = _Tenant(2)
    first, second = (tenant.gateway(idle_at_quota=0.1) for _ in range(2))
    async with closing(first, second):
        await asyncio.gather(run(first, ONE), run(first, ONE))
        await run(second, ONE)
        assert tenant.most == 2
        await until(lambda: len(tenant.live) == 1)  # the rest stays, since there is room


async def test_a_stop_creates_nothing_and_answers_those_that_no_sandbox_can_serve() -> None:
    tenant = _Tenant(1)
    gateway = tenant.gateway()
    async with closing(gateway):
        async with gateway.lease(ALPHA, ONE, timeout=90):
            waiting = [asyncio.create_task(run(gateway, place)) for place in (ONE, OTHER)]
            await until(lambda: tenant.creates >= 3)
            gateway.drain()
            creates = tenant.creates
            with pytest.raises(NoWorker, match="shutting down"):
                await waiting[1]
            with pytest.raises(NoWorker, match="shutting down"):
                await run(gateway, OTHER)
        await waiting[0]
        await run(gateway, ONE)
        tenant.live[0].status = Status.TERMINATED
        with pytest.raises(NoWorker, match="shutting down"):
            await run(gateway, ONE)
    assert tenant.creates == creates
