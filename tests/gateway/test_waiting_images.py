"""SupplyCore where slots take any image: a freed slot goes to a waiting create whose image its node has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sandlot_contract.ids import InstanceId
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, PoolStatus, by_size
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slot import Hold
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import Asked, AskId, CameBack, Event, Grant, Looked, Offered
from sandlot_gateway.core.supply_settings import SupplySettings

SLOTS = PoolSpec("slots", Template(""), 2)


class SlotWorld:
    """A backend with one pool of slots."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[str]] = defaultdict(set)  # image -> nodes that have it

    def pools(self) -> list[PoolStatus]:
        return [PoolStatus(SLOTS, starting=0)]

    def pool(self, name: str) -> PoolSpec | None:
        return SLOTS if name == SLOTS.name else None

    def begun(self, instance_id: str) -> float | None:
        return 0.0

    def nodes_with(self, image: str) -> Collection[str]:
        return self.nodes[image]


class Creates:
    """Creates that wait while every slot is busy."""

    def __init__(self) -> None:
        self.world = SlotWorld()
        self.core = SupplyCore(
            settings=SupplySettings(), slots=Slots(rank=first_come(), kind=by_size), seen=self.world
        )
        self.images: dict[AskId, str] = {}
        self._slots = 0
        self._holds: dict[InstanceId, Hold] = {}

    def ask(
        self,
        image: str,
        *,
        tenant: str = "t",
        again: bool = False,
        now: float = 0.0,
        avoid: tuple[str, ...] = (),
    ) -> None:
        ask = AskId(len(self.images) + 1)
        self.images[ask] = image
        asked = Asked(ask, Template(image), tenant, again=again, avoid=frozenset(avoid))
        assert not self.core.step(asked, now)

    def free(self, node: str | None, *, now: float = 1.0, used_by: str = "") -> str | None:
        """Free a slot on this node and return the image of the create that gets it."""
        self._slots += 1
        slot = Instance(f"i-{self._slots}", Template(used_by), "unix:/none", "token", SLOTS.name, node=node)
        self.core.slots.report_warm(slot, 1)
        return self._served(Offered(slot), now=now)

    def give_back(self, slot: int, image: str) -> str | None:
        """Give this slot back while its node prepares the image; return the image of the create that gets it next."""
        instance = self.core.slots.holds.put_back(self._holds[InstanceId(f"i-{slot}")])
        assert instance is not None
        return self._served(Offered(instance, awaits=image), now=1.0)

    def come_back(self, slot: int, image: str) -> str | None:
        """End the wait of `give_back`."""
        return self._served(CameBack(InstanceId(f"i-{slot}"), image), now=1.0)

    def look(self, *, now: float) -> str | None:
        """Let time pass."""
        return self._served(Looked(), now=now)

    def _served(self, event: Event, *, now: float) -> str | None:
        granted = [effect for effect in self.core.step(event, now) if isinstance(effect, Grant)]
        assert len(granted) <= 1
        self._holds.update({effect.hold.instance.id: effect.hold for effect in granted})
        return self.images[granted[0].ask] if granted else None


def test_a_freed_slot_goes_to_a_create_whose_image_its_node_has() -> None:
    creates = Creates()
    creates.world.nodes["b"].add("n2")
    for image in "abc":
        creates.ask(image)
    assert [creates.free("n2") for _ in range(3)] == ["b", "a", "c"]


def test_a_prepared_create_waits_for_its_node_while_others_can_use_the_slot() -> None:
    """It would pull the whole image again on each node that frees a slot."""
    creates = Creates()
    creates.ask("a")
    creates.ask("b")
    creates.world.nodes["x"].add("n1")
    creates.ask("x", again=True)
    assert creates.free("n2") == "a"
    assert creates.free("n1") == "x"
    assert creates.free("n1") == "b"


def test_no_slot_stays_idle_while_a_create_waits() -> None:
    creates = Creates()
    creates.world.nodes["x"].add("n1")
    creates.ask("x", again=True)
    assert creates.free("n2") == "x"


def test_a_create_is_not_passed_over_for_ever() -> None:
    creates = Creates()
    creates.world.nodes["popular"].add("n1")
    creates.ask("rare", tenant="u")
    for _ in range(40):
        creates.ask("popular")
    got = [creates.free("n1", now=10.0) for _ in range(20)]
    assert 0 < got.index("rare") < 10


def test_a_prepared_create_is_not_passed_over_for_longer_than_a_moment() -> None:
    creates = Creates()
    creates.world.nodes["x"].add("n1")
    creates.ask("x", again=True)
    for _ in range(40):
        creates.ask("other")
    assert [creates.free("n2", now=1.0) for _ in range(20)] == ["other"] * 20
    assert creates.free("n2", now=100.0) == "x"


def test_a_create_avoids_the_slots_of_nodes_that_failed_it() -> None:
    creates = Creates()
    creates.ask("x", again=True, avoid=("n1",))
    creates.ask("other")
    assert creates.free("n1") == "other"
    assert creates.free("n2") == "x"


def test_a_create_is_passed_over_only_for_its_own_tenants_slots() -> None:
    creates = Creates()
    creates.ask("a", tenant="u")
    creates.world.nodes["b"].add("n1")
    creates.ask("b", tenant="v")
    assert creates.free(None) == "a"
    assert creates.free("n1") == "b"


def test_the_image_that_the_slot_has_counts_as_prepared() -> None:
    creates = Creates()
    creates.ask("a")
    creates.ask("b")
    assert creates.free("n1", used_by="b") == "b"
    assert creates.free("n1") == "a"


def test_a_long_line_of_other_images_keeps_its_order() -> None:
    creates = Creates()
    for number in range(300):
        creates.ask(f"image-{number}")
    assert [creates.free("n1") for _ in range(300)] == [f"image-{number}" for number in range(300)]
