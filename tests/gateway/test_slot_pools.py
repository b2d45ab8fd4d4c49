"""SupplyCore with a pool of slots: its creates wait for it while it has slots or can get some."""

from __future__ import annotations

import pytest
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.pools import Pools
from sandlot_gateway.core.instances import PoolSpec, PoolStatus, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import (
    Asked,
    AskId,
    CannotStart,
    Launch,
    LaunchRefused,
    Looked,
    Refuse,
)
from sandlot_gateway.core.supply_settings import SupplySettings
from sandlot_kube.objects import Metadata, SandboxPool, SandboxPoolSpec, SandboxPoolStatus
from sandlot_kube.template import Template as KubeTemplate

from tests.gateway.supply_world import BIG, ONE, World

SLOTS = PoolSpec("slots", Template(""), 2)


class SlotWorld(World):
    status = PoolStatus(SLOTS, starting=0)

    def pools(self) -> list[PoolStatus]:
        return [self.status]


@pytest.fixture
def world() -> SlotWorld:
    return SlotWorld()


@pytest.fixture
def core(world: SlotWorld) -> SupplyCore:
    return SupplyCore(settings=SupplySettings(), slots=Slots(rank=first_come(), kind=by_size), seen=world)


@pytest.mark.parametrize(
    "status",
    [
        PoolStatus(SLOTS, starting=0, empty=True),  # it is new
        PoolStatus(SLOTS, starting=1, failures=3, empty=True),
        PoolStatus(SLOTS, starting=0, failures=3),
    ],
)
def test_creates_wait_for_a_pool_that_gets_slots(
    core: SupplyCore, world: SlotWorld, status: PoolStatus
) -> None:
    world.status = status
    assert not core.step(Asked(AskId(1), ONE, "alpha"), 0.0)
    assert not core.step(Looked(), 2.0)


def test_creates_of_a_pool_that_gets_no_slots_start_instances_of_their_own(
    core: SupplyCore, world: SlotWorld
) -> None:
    """They would wait for ever, and nobody would tell why."""
    assert not core.step(Asked(AskId(1), ONE, "alpha"), 0.0)
    world.status = PoolStatus(SLOTS, starting=0, failures=1, message="no such runtime class", empty=True)
    [launch] = core.step(Looked(), 2.0)
    assert isinstance(launch, Launch)
    assert launch.template == ONE


def refuse_starts(core: SupplyCore) -> None:
    """Have the backend say, to a create of another size, that it has no room."""
    [launch] = core.step(Asked(AskId(1), BIG, "alpha"), 0.0)
    assert isinstance(launch, Launch)
    [refused] = core.step(LaunchRefused(launch.start, "no room", 10.0, refuse=True), 0.0)
    assert isinstance(refused, Refuse)


def test_without_room_a_create_still_waits_for_slots(core: SupplyCore) -> None:
    refuse_starts(core)
    for number in (2, 3):
        assert not core.step(Asked(AskId(number), ONE, "alpha"), 1.0)


def test_without_room_a_create_of_a_pool_without_slots_is_refused(core: SupplyCore, world: SlotWorld) -> None:
    world.status = PoolStatus(SLOTS, starting=0, failures=1, empty=True)
    refuse_starts(core)
    [refused] = core.step(Asked(AskId(2), ONE, "alpha"), 1.0)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, CannotStart)


def test_without_room_slots_of_another_tenant_do_not_count(core: SupplyCore, world: SlotWorld) -> None:
    world.status = PoolStatus(PoolSpec("slots", Template(""), 2, owner="beta"), starting=0)
    refuse_starts(core)
    [refused] = core.step(Asked(AskId(2), ONE, "alpha"), 1.0)
    assert isinstance(refused, Refuse)
    assert not core.step(Asked(AskId(3), ONE, "beta"), 1.0)


@pytest.mark.parametrize("field", [None, "ready", "starting", "claimed"])
def test_a_pool_resource_says_whether_it_has_instances(field: str | None) -> None:
    told = SandboxPoolStatus(failures=2, message="no node", **({field: 1} if field else {}))
    pools = Pools(None, namespace="default", starting=lambda pool: 0)  # type: ignore[arg-type]
    spec = SandboxPoolSpec(template=KubeTemplate(image=""), size=1)
    pools.replaced([SandboxPool(Metadata(name="slots"), spec, told)])
    [status] = pools.statuses()
    assert (status.failures, status.message, status.empty) == (2, "no node", field is None)
