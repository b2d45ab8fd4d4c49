"""The ready queue and the line of waiting creates, as plain data."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.ready import ReadyQueue, by_chance, first_come
from sandlot_gateway.core.waiting import Waiter, WaitList

TEMPLATES = [Template(image="a"), Template(image="b"), Template(image="a", cpu=2.0)]
POOLS = [None, "p", "q"]


def instance(number: int, template: Template, pool: str | None) -> Instance:
    return Instance(f"i-{number:016x}", template, f"unix:/{number}", "token", pool=pool)


class ReadyQueueMachine(RuleBasedStateMachine):
    """Against a model: one ordered list of everything that is in."""

    rank = staticmethod(first_come)

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[str, int] = {}
        rank = type(self).rank()

        def ranked(instance_id: str) -> int:
            self.ranks[instance_id] = rank(instance_id)
            return self.ranks[instance_id]

        self.queue = ReadyQueue(rank=ranked)
        self.model: OrderedDict[str, tuple[Instance, str | None]] = OrderedDict()
        self.known: list[Instance] = []

    @rule(template=st.sampled_from(TEMPLATES), pool=st.sampled_from(POOLS))
    def put_new(self, template: Template, pool: str | None) -> None:
        made = instance(len(self.known), template, pool)
        self.known.append(made)
        assert self.queue.put(made)
        self.model[made.id] = (made, pool)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def put_again(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.known))
        assert self.queue.put(old) is (old.id not in self.model)
        self.model.setdefault(old.id, (old, old.pool))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), pool=st.sampled_from(POOLS))
    def backend_moves_it(self, data: st.DataObject, pool: str | None) -> None:
        """The backend may change an instance's pool while it is in the queue; the queue must stay whole."""
        data.draw(st.sampled_from(self.known)).pool = pool

    @rule(template=st.sampled_from(TEMPLATES), pool=st.sampled_from(POOLS))
    def take(self, template: Template, pool: str | None) -> None:
        taken = self.queue.take(template.key, pool=pool)
        fits = [
            made
            for made, its_pool in self.model.values()
            if made.template.key == template.key and pool in (None, its_pool)
        ]
        fits.sort(key=lambda made: (self.ranks[made.id], made.id))
        assert taken is (fits[0] if fits else None)
        if taken is not None:
            del self.model[taken.id]

    @rule(pool=st.sampled_from(POOLS[1:]), keep=st.sampled_from(TEMPLATES))
    def shed(self, pool: str, keep: Template) -> None:
        shed = self.queue.shed(pool, keep=keep.key)
        members = [made for made, its_pool in self.model.values() if its_pool == pool]
        assert (shed is None) is (not members)
        if shed is not None:
            others = [made for made in members if made.template.key != keep.key]
            assert shed in (others or members)
            del self.model[shed.id]

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.known))
        gone = self.queue.discard(old.id)
        assert (gone is not None) is (self.model.pop(old.id, None) is not None)

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.queue) == len(self.model)
        for pool in POOLS[1:]:
            assert self.queue.count(pool) == sum(its == pool for _, its in self.model.values())
        for template in TEMPLATES:
            in_model = sum(made.template.key == template.key for made, _ in self.model.values())
            assert self.queue.count_template(template.key) == in_model


class MixedQueueMachine(ReadyQueueMachine):
    rank = staticmethod(by_chance)


TestReadyQueue = ReadyQueueMachine.TestCase
TestMixedQueue = MixedQueueMachine.TestCase
TestReadyQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMixedQueue.settings = TestReadyQueue.settings


def test_first_come_is_first_served() -> None:
    queue = ReadyQueue(rank=first_come())
    for number in (5, 3, 4):
        queue.put(instance(number, TEMPLATES[0], "p"))
    taken = [queue.take(TEMPLATES[0].key) for _ in range(3)]
    assert [made.id[-1] for made in taken if made is not None] == ["5", "3", "4"]


def test_two_gateways_seldom_begin_with_the_same_instance() -> None:
    same = 0
    for _ in range(200):
        queues = [ReadyQueue(rank=by_chance()) for _ in range(2)]
        for number in range(16):
            for queue in queues:
                queue.put(instance(number, TEMPLATES[0], "p"))
        first, second = (queue.take(TEMPLATES[0].key) for queue in queues)
        same += first is not None and second is not None and first.id == second.id
    assert same < 50  # 12 or 13 of 200 by chance; all of them when both take the oldest


def waiter(tenant: str, value: int, template: Template = TEMPLATES[0]) -> Waiter[int]:
    return Waiter(template, template.key, tenant, value)


def test_a_tenant_with_many_does_not_delay_another() -> None:
    line: WaitList[int] = WaitList()
    for number in range(100):
        line.add(waiter("greedy", number))
    line.add(waiter("modest", 1000))
    order = [line.pop(TEMPLATES[0].key) for _ in range(3)]
    assert [w.tenant for w in order if w is not None] == ["greedy", "modest", "greedy"]


def test_front_is_served_next_and_positions_tell_the_order() -> None:
    line: WaitList[int] = WaitList()
    first, second, again = waiter("a", 1), waiter("a", 2), waiter("b", 3)
    line.add(first)
    line.add(second)
    line.add(again, front=True)
    assert [line.position(w) for w in (again, first, second)] == [1, 2, 3]
    assert line.pop(TEMPLATES[0].key) is again


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(TEMPLATES), st.integers(0, 3)), max_size=60)
)
@settings(deadline=None)
def test_everybody_is_served_once_and_in_turns(asks: list[tuple[str, Template, int]]) -> None:
    line: WaitList[int] = WaitList()
    waiting: list[Waiter[int]] = []
    served: list[Waiter[int]] = []
    for number, (tenant, template, action) in enumerate(asks):
        if action == 0 and waiting:
            left = waiting.pop(number % len(waiting))
            assert line.remove(left)
            assert not line.remove(left)
        elif action == 1:
            popped = line.pop(template.key)
            mine = [w for w in waiting if w.key == template.key]
            assert (popped is None) is (not mine)
            if popped is not None:
                same = [w for w in mine if w.tenant == popped.tenant]
                assert popped is same[0], "within a tenant it is first in, first out"
                waiting.remove(popped)
                served.append(popped)
        else:
            entered = waiter(tenant, number, template)
            line.add(entered)
            waiting.append(entered)
        assert len(line) == len(waiting)
        assert sorted(line.position(w) for w in waiting) == list(range(1, len(waiting) + 1))
    assert len({w.value for w in served}) == len(served)
