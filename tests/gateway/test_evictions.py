"""Creates that wait while the instances of their kind are bound to other tenants, and nothing else has room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.ready import first_come
from sandlot_gateway.core.reuse import UNBOUND, Binding
from sandlot_gateway.core.slot import Hold
from sandlot_gateway.core.slots import Slots
from sandlot_gateway.core.supply import SupplyCore
from sandlot_gateway.core.supply_events import (
    Asked,
    AskId,
    Destroy,
    Destroyed,
    Effect,
    Event,
    Grant,
    Launch,
    LaunchRefused,
    Looked,
    Offered,
    Refuse,
)

from tests.gateway.supply_world import BOUNDS, ONE, SHARED, World, new_instance

START, REMOVAL = 2.0, 0.5  # seconds that a start and a removal take


class Crowd:
    """A machine with room for `capacity` instances of one pool, in a time of its own."""

    def __init__(self, capacity: int, *, refuse: bool = False) -> None:
        self.world = World()
        self.core = SupplyCore(settings=BOUNDS, slots=Slots(rank=first_come()), seen=self.world)
        self.capacity = capacity
        self.refuse = refuse  # creates, where a start finds no room
        self.now = 0.0
        self.present = 0
        self.made = 0
        self.asked: dict[AskId, Asked] = {}
        self.asked_at: dict[AskId, float] = {}
        self.waits: dict[AskId, float] = {}  # of those that were served
        self.refused: list[AskId] = []
        self.evicted: Counter[str | None] = Counter()  # by the tenant that had used it
        self.later: list[tuple[float, int, Callable[[], None]]] = []
        self.hold: Callable[[str], float] = lambda tenant: 1.0
        self.again: Callable[[str], bool] = lambda tenant: False

    def add(self, *used: str | None) -> None:
        """Instances that are ready, each used by this tenant before."""
        self.present += len(used)
        for tenant in used:
            self.made += 1
            instance = new_instance(f"i-{self.made}", ONE, pool="shared")
            self.offer(instance, 1, UNBOUND if tenant is None else Binding(tenant, 1))

    def ask(self, tenant: str) -> AskId:
        ask = AskId(len(self.asked) + 1)
        self.asked[ask] = Asked(ask, ONE, tenant)
        self.asked_at[ask] = self.now
        self.step(self.asked[ask])
        return ask

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.later or self.core.look_at() is not None:
            self.later.sort(key=lambda one: one[:2])
            look = self.core.look_at()
            at = min([one[0] for one in self.later[:1]] + ([look] if look is not None else []))
            if at > until:
                break
            self.now = max(self.now, at)
            if self.later and self.later[0][0] <= self.now:
                self.later.pop(0)[2]()
            else:
                self.step(Looked())
        self.now = until

    def offer(self, instance: Instance, generation: int, binding: Binding) -> None:
        self.core.slots.report_warm(instance, generation, binding)
        self.step(Offered(instance))

    def step(self, event: Event) -> None:
        for effect in self.core.step(event, self.now):
            self.act(effect)
        self.fill()

    def act(self, effect: Effect) -> None:
        match effect:
            case Grant(ask, granted):
                asked = self.asked[ask]
                assert self.core.slots.bound_to(granted.instance.id) in (None, asked.tenant)
                self.waits[ask] = self.now - self.asked_at[ask]
                self.after(self.hold(asked.tenant), lambda: self.end(granted, asked))
            case Refuse(ask):
                self.refused.append(ask)
            case Launch(start):
                # Of no pool; what makes room in time are the pool's own.
                refused = LaunchRefused(start, "no room", 1.0, self.refuse)
                self.after(0.0, lambda: self.step(refused))
            case Destroy(instance_id):
                self.evicted[self.core.slots.bound_to(instance_id)] += 1
                self.after(REMOVAL, lambda: self.remove(instance_id))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.later.append((self.now + seconds, len(self.later) + self.made, what))

    def fill(self) -> None:
        """The pool's size is all the room there is."""
        starting = self.world.starting[SHARED.name]
        for _ in range(self.capacity - self.present - starting):
            self.world.starting[SHARED.name] += 1
            self.after(START, self.started)

    def started(self) -> None:
        self.world.starting[SHARED.name] -= 1
        self.add(None)

    def end(self, granted: Hold, asked: Asked) -> None:
        sandbox_id, instance = f"sb-{asked.ask}", granted.instance
        claim = self.core.slots.holds.claim(granted, sandbox_id, tenant=asked.tenant)
        assert claim is not None
        assert self.core.slots.holds.accepted(granted) is None
        end = self.core.slots.end(instance.id, sandbox_id)
        assert end is not None
        self.core.slots.was_reset(instance.id, end.generation)
        if self.again(asked.tenant):
            self.ask(asked.tenant)
        self.offer(instance, end.generation + 1, end.binding)

    def remove(self, instance_id: str) -> None:
        self.core.slots.gone(instance_id)
        self.present -= 1
        self.step(Destroyed(instance_id))


def test_one_that_is_bound_to_another_tenant_is_replaced() -> None:
    crowd = Crowd(3)
    crowd.add("beta", "beta", "beta")
    ask = crowd.ask("alpha")
    crowd.pass_time(10.0)
    assert crowd.waits[ask] == START + REMOVAL
    assert crowd.evicted == {"beta": 1}
    assert len(crowd.core.slots.warm) == 3
    again = crowd.ask("alpha")
    assert crowd.waits[again] == 0.0, "what alpha has used is alpha's"


def test_none_is_evicted_that_fits_or_while_a_start_is_on_the_way() -> None:
    crowd = Crowd(3)
    crowd.add("beta", None, "alpha")
    for _ in range(2):
        crowd.ask("alpha")
    assert not crowd.evicted
    crowd = Crowd(3)
    crowd.add("beta", "beta")  # the third one is being started
    ask = crowd.ask("alpha")
    crowd.pass_time(10.0)
    assert crowd.waits[ask] == START
    assert not crowd.evicted


def test_the_tenant_with_most_loses_one() -> None:
    crowd = Crowd(4)
    crowd.add("beta", "gamma", "gamma", "gamma")
    crowd.hold = lambda tenant: 100.0
    for _ in range(3):
        crowd.ask("alpha")
    assert crowd.evicted == {"gamma": 2, "beta": 1} or crowd.evicted == {"gamma": 3}


def test_a_create_is_not_refused_while_one_can_be_evicted() -> None:
    """The backend has no room, and says so before the evicted one has gone."""
    crowd = Crowd(2, refuse=True)
    crowd.add("beta", "beta")
    for _ in range(3):
        crowd.ask("alpha")
    crowd.hold = lambda tenant: 100.0
    crowd.pass_time(10.0)
    assert len(crowd.refused) == 1, "there are two instances"
    assert list(crowd.waits.values()) == [START + REMOVAL] * 2


def test_a_tenant_that_always_waits_does_not_keep_all_instances_for_ever() -> None:
    crowd = Crowd(4)
    crowd.add(*["beta"] * 4)
    crowd.hold = lambda tenant: 0.5
    crowd.again = lambda tenant: tenant == "beta"
    for _ in range(6):
        crowd.ask("beta")
    crowd.pass_time(5.0)
    ask = crowd.ask("alpha")
    crowd.pass_time(30.0)
    assert crowd.waits[ask] < 15.0
    assert 1 <= crowd.evicted["beta"] <= 5


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from(["alpha", "beta", "gamma"]), st.sampled_from([0.0, 0.3, 2.0, 9.0])),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0.1, 1.0, 6.0]),
)
@settings(deadline=None, max_examples=200)
def test_nobody_starves(capacity: int, asks: list[tuple[str, float]], hold: float) -> None:
    """Whatever order creates come in: with instances that are idle or become so, each has its own in a bounded time."""
    crowd = Crowd(capacity)
    crowd.add(*["alpha"] * capacity)
    crowd.hold = lambda tenant: hold
    made = []
    for tenant, pause in asks:
        made.append(crowd.ask(tenant))
        crowd.pass_time(pause)
    crowd.pass_time(200.0)
    assert not crowd.core.waiting
    turn = hold + START + REMOVAL + 3 * START
    assert all(crowd.waits[ask] <= turn * (len(asks) + 1) for ask in made), crowd.waits
