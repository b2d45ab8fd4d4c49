"""What SupplyCore decides about starts and waiting creates, under every order of events that hypothesis thinks of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.slots import Loss, ReportOutcome, Slots
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
    LaunchFailed,
    LaunchRefused,
    Looked,
    Lost,
    Offered,
    QueueFull,
    Refuse,
    RoomMade,
    StartFailed,
    StartId,
    Taken,
    Withdrawn,
)

from tests.gateway.supply_world import BOUNDS, ONE, OTHER, OWN, SHARED, World, new_instance

tenants = st.sampled_from(["alpha", "beta"])
templates = st.sampled_from([ONE, OTHER])
ends = st.sampled_from(["start_failed", "image_pull", "node_lost", "deleted"])
choices = st.integers(0, 1 << 16)


@dataclass
class Start:
    """What the world knows of one: its instance is there before its launch has returned."""

    instance: Instance
    returned: bool = False
    told: bool = False


class SupplyModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=self.world)
        self.now = 1000.0
        self.asks: dict[AskId, Asked] = {}  # that wait
        self.withdrawn: set[AskId] = set()
        self.owned: dict[str, AskId] = {}
        self.starts: dict[StartId, Start] = {}  # that are not over
        self.offered: set[str] = set()  # instances that nobody has and that may be granted
        self.unheard: dict[str, Instance] = {}  # of pools, not ready yet
        self.names = 0

    # What happens.

    @rule(tenant=tenants, template=templates, pool=st.sampled_from([None, "shared"]), flags=st.integers(0, 7))
    def ask(self, tenant: str, template: Template, pool: str | None, flags: int) -> None:
        self.names += 1
        ask = Asked(
            AskId(self.names), template, tenant, pool, bool(flags & 1), bool(flags & 2), not flags & 4
        )
        self.asks[ask.ask] = ask
        self.step(ask)

    @precondition(lambda self: self.asks)
    @rule(choice=choices)
    def withdraw(self, choice: int) -> None:
        ask = pick(self.asks, choice)
        del self.asks[ask]
        self.withdrawn.add(ask)
        self.step(Withdrawn(ask))

    @rule(choice=choices)
    def withdraw_too_late(self, choice: int) -> None:
        self.step(Withdrawn(AskId(1_000_000 + choice)))

    @precondition(lambda self: self.launching())
    @rule(choice=choices, waits=st.booleans())
    def launch_returns(self, choice: int, waits: bool) -> None:
        start_id = pick(self.launching(), choice)
        start = self.starts[start_id]
        if waits and not start.told:
            self.world.begun_at[start.instance.id] = None
        self.launched(start_id)

    @precondition(lambda self: self.launching())
    @rule(choice=choices, refused=st.booleans(), refuse=st.booleans())
    def launch_does_not(self, choice: int, refused: bool, refuse: bool) -> None:
        start_id = pick(self.launching(), choice)
        if self.starts[start_id].told:
            return
        del self.starts[start_id]
        if refused:
            self.step(LaunchRefused(start_id, "no room", 5.0, refuse))
        else:
            self.step(LaunchFailed(start_id, StartFailed("bad", error_type="START_FAILED")))

    @precondition(lambda self: self.untold())
    @rule(choice=choices, end=st.none() | ends, taken=st.booleans())
    def start_ends(self, choice: int, end: str | None, taken: bool) -> None:
        """Ready, lost, or taken by another gateway: maybe before its launch has returned."""
        start_id = pick(self.untold(), choice)
        start = self.starts[start_id]
        start.told = True
        if start.returned:
            del self.starts[start_id]
        if end is not None:
            self.lose(start.instance.id, end)
        elif taken:
            self.core.slots.report_owned(start.instance, 1, "sb-another")
            self.step(Taken(start.instance.id))
        else:
            self.offer(start.instance)

    @rule(spec=st.sampled_from([SHARED, OWN]))
    def pool_starts(self, spec: PoolSpec) -> None:
        self.names += 1
        self.world.starting[spec.name] += 1
        instance = new_instance(f"pool-{self.names}", spec.template, pool=spec.name)
        self.unheard[instance.id] = instance

    @precondition(lambda self: self.unheard)
    @rule(choice=choices, ready=st.booleans())
    def pool_start_ends(self, choice: int, ready: bool) -> None:
        instance = self.unheard.pop(pick(self.unheard, choice))
        self.world.starting[instance.pool or ""] -= 1
        if ready:
            self.offer(instance)
        else:
            self.lose(instance.id, "start_failed")

    @precondition(lambda self: self.offered)
    @rule(choice=choices, taken=st.booleans())
    def warm_goes(self, choice: int, taken: bool) -> None:
        gone = pick(dict.fromkeys(sorted(self.offered)), choice)
        self.offered.discard(gone)
        if taken:
            slot = self.core.slots.get(gone)
            assert slot is not None
            assert self.core.slots.report_owned(slot.instance, 1, "sb-another") is ReportOutcome.NEWS
            self.step(Taken(gone))
        else:
            self.lose(gone, "node_lost")

    @precondition(lambda self: self.owned)
    @rule(choice=choices)
    def claim_is_refused(self, choice: int) -> None:
        """Whoever had it gives it back."""
        instance_id = pick(self.owned, choice)
        del self.owned[instance_id]
        instance = self.core.slots.put_back(instance_id)
        assert instance is not None
        self.offered.add(instance_id)
        self.step(Offered(instance))

    @rule()
    def room(self) -> None:
        self.step(RoomMade())

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 10.0, 31.0, 61.0, 250.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.step(Looked())

    # What must hold.

    @invariant()
    def bounds_hold(self) -> None:
        assert self.core.starting <= BOUNDS.max_starts
        assert self.core.waiting == len(self.asks)
        assert {instance.id for instance in self.core.slots.warm} == self.offered

    def teardown(self) -> None:
        """From here on all goes well: every create ends, without waiting for a time to be over."""
        rounds = 0
        while self.asks or self.starts:
            rounds += 1
            assert rounds < 100, (self.asks, self.starts)
            self.step(RoomMade())
            for start_id in list(self.launching()):
                self.launched(start_id)
            for start_id in [one for one in self.untold() if one not in self.launching()]:
                self.offer(self.starts.pop(start_id).instance)
            for instance in list(self.unheard.values()):
                self.world.starting[instance.pool or ""] -= 1
                del self.unheard[instance.id]
                self.offer(instance)
        assert (self.core.starting, self.core.waiting) == (0, 0)
        self.now += BOUNDS.spare_seconds
        self.step(Looked())
        assert self.core.look_at() is None
        assert all(instance.pool for instance in self.core.slots.warm)

    # Inside.

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

    def offer(self, instance: Instance) -> None:
        self.offered.add(instance.id)
        assert self.core.slots.report_warm(instance, 1) is ReportOutcome.NEWS
        self.step(Offered(instance))

    def lose(self, instance_id: str, verdict: str) -> None:
        self.core.slots.lost(instance_id, Loss(verdict, "gone"))
        self.step(Lost(instance_id, verdict, "gone"))

    def step(self, event: Event) -> None:
        launched: set[str] = set()
        refused: set[str] = set()
        for effect in self.core.step(event, self.now):
            match effect:
                case Grant(ask, instance):
                    asked = self.asks.pop(ask)  # once, and to nobody who has left
                    assert instance.id in self.offered, "one that is not ready, or somebody else's"
                    assert instance.template == asked.template
                    assert instance.pool != "own" or asked.tenant == "beta"
                    assert effect.queued >= 0
                    assert effect.start >= 0
                    self.offered.discard(instance.id)
                    self.owned[instance.id] = ask
                case Refuse(ask, error):
                    asked = self.asks.pop(ask)
                    assert not (asked.again and isinstance(error, QueueFull))
                    if isinstance(error, CannotStart):
                        refused.add(asked.template.key)
                case Launch(start_id, template):
                    self.names += 1
                    self.starts[start_id] = Start(new_instance(f"start-{self.names}", template))
                    launched.add(template.key)
                case Destroy(instance_id):
                    assert instance_id not in self.owned
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

    def waiting(self, key: str) -> int:
        return sum(ask.template.key == key for ask in self.asks.values())

    def starting(self, key: str) -> int:
        return sum(start.instance.template.key == key for start in self.starts.values())


def pick(among: dict[Any, Any], choice: int) -> Any:
    return list(among)[choice % len(among)]


TestSupply = SupplyModel.TestCase
TestSupply.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
