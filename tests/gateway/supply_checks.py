"""What a model of SupplyCore remembers of its own steps, and what it checks in each effect."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis.stateful import RuleBasedStateMachine
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, by_size, by_template
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.reuse import UNBOUND, Binding
from sandlot_gateway.core.slot import Hold, Loss, ReportOutcome
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import (
    Asked,
    AskId,
    CannotStart,
    Destroy,
    Event,
    Grant,
    Launch,
    Launched,
    Lost,
    Offered,
    QueueFull,
    Refuse,
    StartFailed,
    StartId,
)

from tests.gateway.supply_world import BOUNDS, World, new_instance


@dataclass
class Start:
    """What the world knows of one: its instance is there before its launch has returned."""

    instance: Instance
    returned: bool = False
    told: bool = False


class CheckedSupply(RuleBasedStateMachine):
    """`kind`: which instances replace each other."""

    kind = staticmethod(by_template)
    some_keep_their_image = False
    node: str | None = None  # of all instances

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        slots = Slots(rank=first_come(), kind=self.kind)
        self.core = SupplyCore(settings=BOUNDS, slots=slots, seen=self.world)
        self.now = 1000.0
        self.asks: dict[AskId, Asked] = {}  # that wait
        self.withdrawn: set[AskId] = set()
        self.owned: dict[str, Asked] = {}
        self.holds: dict[str, Hold] = {}  # of those
        self.taken: list[Hold] = []  # whose slots were taken from them
        self.bound: dict[str, str] = {}  # instances that a tenant has used
        self.leaving: dict[str, None] = {}  # instances that the backend is destroying
        self.starts: dict[StartId, Start] = {}  # that are not over
        self.offered: set[str] = set()  # instances that nobody has and that may be granted
        self.unheard: dict[str, Instance] = {}  # of pools, not ready yet
        self.names = 0
        self.failed: Template | None = None  # of the start that fails in this step

    def launched(self, start_id: StartId) -> None:
        start = self.starts[start_id]
        start.returned = True
        if start.told:
            del self.starts[start_id]
        self.step(Launched(start_id, start.instance.id))

    def launching(self) -> dict[StartId, Start]:
        return {start_id: start for start_id, start in self.starts.items() if not start.returned}

    def untold(self) -> dict[StartId, Start]:
        return {start_id: start for start_id, start in self.starts.items() if not start.told}

    def offer(self, instance: Instance, *, used: str | None = None) -> None:
        """`used`: by this tenant, through another gateway."""
        self.offered.add(instance.id)
        instance.node = self.node
        if used is not None:
            self.bound[instance.id] = used
        binding = Binding(used, 1) if used is not None else UNBOUND
        heard = self.core.slots.report_warm(instance, 1 + binding.uses, binding)
        assert heard is ReportOutcome.NEWS
        self.step(Offered(instance))

    def end_owner(self, instance_id: str) -> None:
        asked, slots = self.owned.pop(instance_id), self.core.slots
        sandbox_id, hold = f"sb-{asked.ask}", self.holds.pop(instance_id)
        claim = slots.holds.claim(hold, sandbox_id, tenant=asked.tenant)
        assert claim is not None
        assert slots.holds.accepted(hold) is None
        end = slots.end(instance_id, sandbox_id)
        assert end is not None
        assert end.binding.tenant == asked.tenant
        if self.kind is by_size and not end.instance.keeps_image:
            end.instance.template = replace(end.instance.template, image=asked.template.image)
        slots.was_reset(instance_id, end.generation)
        self.bound[instance_id] = asked.tenant
        self.offered.add(instance_id)
        heard = slots.report_warm(end.instance, end.generation + 1, end.binding)
        assert heard is ReportOutcome.NEWS
        self.step(Offered(end.instance))

    def fits(self, instance: Instance, ask: Asked) -> bool:
        return (
            self.kind(instance.template) == self.kind(ask.template)
            and (not instance.keeps_image or (instance.has_own(ask.template.image) and not ask.lays_image))
            and (instance.pool != "own" or ask.tenant == "beta")
            and self.bound.get(instance.id) in (None, ask.tenant)
        )

    def lose(self, instance_id: str, verdict: str) -> None:
        self.core.slots.lost(instance_id, Loss(verdict, "gone"))
        self.step(Lost(instance_id, verdict, "gone"))

    def step(self, event: Event) -> None:
        launched: set[str] = set()
        refused: set[str] = set()
        for effect in self.core.step(event, self.now):
            match effect:
                case Grant(ask, hold):
                    instance = hold.instance
                    asked = self.asks.pop(ask)  # once, and to nobody who has left
                    assert instance.id in self.offered, "one that is not ready, or somebody else's"
                    assert self.fits(instance, asked), "of another kind, pool or tenant"
                    self.check_image(instance, asked, at_once=effect.pool_hit)
                    assert effect.queued >= 0
                    assert effect.start >= 0
                    self.offered.discard(instance.id)
                    self.owned[instance.id] = asked
                    self.holds[instance.id] = hold
                case Refuse(ask, error):
                    asked = self.asks.pop(ask)
                    assert not ((asked.again or asked.patient) and isinstance(error, QueueFull))
                    if isinstance(error, CannotStart):
                        refused.add(self.kind(asked.template))
                    if self.failed is not None and isinstance(error, StartFailed):
                        assert asked.template == self.failed, "failed for another create's image"
                case Launch(start_id, template):
                    self.names += 1
                    self.starts[start_id] = Start(new_instance(f"start-{self.names}", template))
                    launched.add(self.kind(template))
                case Destroy(instance_id):
                    assert instance_id not in self.owned
                    self.leaving[instance_id] = None
                    self.check_evicted(instance_id)
                    self.offered.discard(instance_id)
                    for start_id, start in list(self.starts.items()):
                        if start.instance.id == instance_id:
                            # A launch may return after its instance was ready, had an owner, and was a spare too long.
                            assert start.returned or start.told
                            if start.returned:
                                del self.starts[start_id]
                case _:
                    pass
        for key in launched:
            assert self.starting(key) <= self.waiting(key), "started twice for one want"
        for key in refused:
            assert self.starting(key) <= self.waiting(key), "refused, though a start is under way for it"

    def check_evicted(self, instance_id: str) -> None:
        """One of a pool goes only for a create of another tenant than the one that used it."""
        slot = self.core.slots.get(instance_id)
        if instance_id not in self.offered or slot is None or slot.instance.pool is None:
            return
        others = [ask for ask in self.asks.values() if ask.tenant != self.bound[instance_id]]
        assert any(
            self.kind(ask.template) == self.kind(slot.instance.template)
            and (slot.instance.pool != "own" or ask.tenant == "beta")
            for ask in others
        )

    def check_image(self, instance: Instance, asked: Asked, *, at_once: bool) -> None:
        """A warm one with the image of the create goes before others of the same pool and the same past."""
        if not at_once or instance.template.image == asked.template.image:
            return
        named = asked.pool is not None and instance.pool == asked.pool
        for other_id in self.offered:
            slot = self.core.slots.get(other_id)
            if slot is None or not self.fits(slot.instance, asked):
                continue
            alike = self.bound.get(other_id) == self.bound.get(instance.id)
            if alike and (not named or slot.instance.pool == asked.pool):
                assert slot.instance.template.image != asked.template.image

    def waiting(self, kind: str) -> int:
        return sum(self.kind(ask.template) == kind for ask in self.asks.values())

    def starting(self, kind: str) -> int:
        return sum(self.kind(start.instance.template) == kind for start in self.starts.values())
