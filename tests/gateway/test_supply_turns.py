"""SupplyCore where some creates wait for a scarce size: who is served meanwhile, and how long they wait."""

from __future__ import annotations

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, PoolStatus, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import Asked, AskId, Grant, Launch, Offered, QueueFull, Refuse
from sandlot_gateway.core.supply_settings import SupplySettings

from tests.gateway.supply_world import World

BIG = PoolSpec("big", Template("", cpu=4.0), 1)
SMALL = PoolSpec("small", Template("", cpu=1.0), 8)
POOLS = {pool.name: pool for pool in (BIG, SMALL)}


class TwoSizes(World):
    def pools(self) -> list[PoolStatus]:
        return [PoolStatus(pool, starting=0) for pool in POOLS.values()]

    def pool(self, name: str) -> PoolSpec | None:
        return POOLS.get(name)


class Queue:
    """Creates that wait for slots of two sizes."""

    def __init__(self, settings: SupplySettings) -> None:
        slots = Slots(rank=first_come(), kind=by_size)
        self.core = SupplyCore(settings=settings, slots=slots, seen=TwoSizes())
        self.asks = 0
        self._slots = 0

    def ask(
        self, pool: PoolSpec, tenant: str, run: str = "", *, again: bool = False, patient: bool = False
    ) -> AskId | QueueFull:
        self.asks += 1
        ask = AskId(self.asks)
        template = Template("image", cpu=pool.template.cpu)
        for effect in self.core.step(Asked(ask, template, tenant, None, again, patient, run=run), 0.0):
            if isinstance(effect, Refuse):
                assert isinstance(effect.error, QueueFull)
                return effect.error
            assert isinstance(effect, Launch)
        return ask

    def free(self, pool: PoolSpec) -> AskId:
        """Free a slot and return the create that gets it."""
        self._slots += 1
        slot = Instance(
            InstanceId(f"slot-{self._slots}"), pool.template, "unix:/none", "token", pool.name, node="n"
        )
        self.core.slots.report_warm(slot, 1)
        [grant] = (effect for effect in self.core.step(Offered(slot), 0.0) if isinstance(effect, Grant))
        return grant.ask


@pytest.mark.parametrize(
    ("waits", "served", "other"),
    [
        (("a", ""), ("a", ""), ("b", "")),
        (("a", "r"), ("a", "s"), ("b", "")),
        (("a", "r"), ("a", "r"), ("a", "s")),
    ],
)
def test_a_create_waits_no_longer_because_its_tenant_or_run_is_served_elsewhere(
    waits: tuple[str, str], served: tuple[str, str], other: tuple[str, str]
) -> None:
    """Each small slot used the turn of the one that waits for a big slot, so that others' later creates got these."""
    queue = Queue(SupplySettings())
    old = queue.ask(BIG, *waits)
    granted: list[AskId] = []
    for _ in range(5):
        queue.ask(BIG, *other)
        queue.ask(SMALL, *served)
        queue.free(SMALL)
        granted.append(queue.free(BIG))
    assert old in granted[:2]


def test_creates_that_an_earlier_gateway_accepted_join_a_full_queue_and_take_turns() -> None:
    """They went to its front: a thousand of one run delayed everybody else's first by a thousand slots."""
    queue = Queue(SupplySettings(max_waiting=20))
    recovered = [queue.ask(BIG, "a", patient=True) for _ in range(30)]
    assert not any(isinstance(ask, QueueFull) for ask in recovered)
    assert isinstance(queue.ask(BIG, "a"), QueueFull)
    other = queue.ask(BIG, "b")
    assert [queue.free(BIG) for _ in range(3)] == [recovered[0], other, recovered[1]]
