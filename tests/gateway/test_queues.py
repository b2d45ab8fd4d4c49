"""The ready queue as plain data."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, by_size, by_template
from sandlot_gateway.core.ready import ReadyQueue, by_chance, first_come

TEMPLATES = [Template(image="a"), Template(image="b"), Template(image="a", cpu=2.0)]
POOLS = [None, "p", "q"]
TENANTS = ["alpha", "beta", "gamma"]
NODES = [None, "n", "m"]
bindings = st.sampled_from([None, *TENANTS])


def instance(number: int, template: Template, pool: str | None, **more: Any) -> Instance:
    return Instance(f"i-{number:016x}", template, f"unix:/{number}", "token", pool=pool, **more)


class ReadyQueueMachine(RuleBasedStateMachine):
    """Against a model: one ordered list of everything that is in."""

    rank = staticmethod(first_come)
    kind = staticmethod(by_template)
    some_keep_their_image = False

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[str, int] = {}
        rank = type(self).rank()

        def ranked(instance_id: str) -> int:
            self.ranks[instance_id] = rank(instance_id)
            return self.ranks[instance_id]

        self.queue = ReadyQueue(rank=ranked, kind=self.kind)
        # its pool and its tenant as they were when it was put in
        self.model: OrderedDict[str, tuple[Instance, str | None, str | None]] = OrderedDict()
        self.known: list[Instance] = []

    @rule(
        template=st.sampled_from(TEMPLATES),
        pool=st.sampled_from(POOLS),
        bound_to=bindings,
        node=st.sampled_from(NODES),
        keeps=st.booleans(),
    )
    def put_new(
        self, template: Template, pool: str | None, bound_to: str | None, node: str | None, keeps: bool
    ) -> None:
        keeps = keeps and self.some_keep_their_image
        made = instance(len(self.known), template, pool, node=node, keeps_image=keeps)
        self.known.append(made)
        assert self.queue.put(made, bound_to=bound_to)
        self.model[made.id] = (made, pool, bound_to)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), bound_to=bindings)
    def put_again(self, data: st.DataObject, bound_to: str | None) -> None:
        old = data.draw(st.sampled_from(self.known))
        assert self.queue.put(old, bound_to=bound_to) is (old.id not in self.model)
        self.model.setdefault(old.id, (old, old.pool, bound_to))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), pool=st.sampled_from(POOLS))
    def backend_moves_it(self, data: st.DataObject, pool: str | None) -> None:
        """The backend may change an instance's pool while it is in the queue; the queue must stay whole."""
        data.draw(st.sampled_from(self.known)).pool = pool

    @rule(
        template=st.sampled_from(TEMPLATES),
        pool=st.sampled_from(POOLS),
        tenant=st.sampled_from(TENANTS),
        closed=st.sets(st.sampled_from(POOLS[1:])),
        nodes=st.sets(st.sampled_from(NODES[1:])),
        avoid=st.sets(st.sampled_from(NODES[1:])),
    )
    def take(
        self,
        template: Template,
        pool: str | None,
        tenant: str,
        closed: set[str],
        nodes: set[str],
        avoid: set[str],
    ) -> None:
        taken = self.queue.take(
            self.kind(template),
            image=template.image,
            tenant=tenant,
            pool=pool,
            allowed=lambda name: name not in closed,
            nodes=nodes,
            avoid=avoid,
        )
        fits = [
            (
                bound_to is None,
                made.template.image != template.image,
                made.template.image != template.image and made.node not in nodes,
                self.ranks[made.id],
                made.id,
            )
            for made, its_pool, bound_to in self.model.values()
            if self.kind(made.template) == self.kind(template)
            and (made.template.image == template.image or not made.keeps_image)
            and (made.template.image == template.image or made.node not in avoid)
            and pool in (None, its_pool)
            and its_pool not in closed
            and bound_to in (None, tenant)
        ]
        assert (taken.id if taken is not None else None) == (min(fits)[4] if fits else None)
        if taken is not None:
            del self.model[taken.id]

    @rule(
        template=st.sampled_from(TEMPLATES),
        tenant=st.sampled_from(TENANTS),
        closed=st.sets(st.sampled_from(POOLS[1:])),
    )
    def evict(self, template: Template, tenant: str, closed: set[str]) -> None:
        evicted = self.queue.evict(
            self.kind(template), tenant=tenant, allowed=lambda name: name not in closed
        )
        others = [one for one in self.model.values() if self.kind(one[0].template) == self.kind(template)]
        others = [one for one in others if one[2] not in (None, tenant)]
        fits = {made.id: bound_to for made, its_pool, bound_to in others if its_pool not in closed}
        assert (evicted is None) is (not fits)
        if evicted is not None:
            most = Counter(bound_to for _, _, bound_to in others)
            assert most[fits[evicted.id]] == max(most[bound_to] for bound_to in fits.values())
            del self.model[evicted.id]

    @rule(pool=st.sampled_from(POOLS[1:]), keep=st.sampled_from(TEMPLATES))
    def shed(self, pool: str, keep: Template) -> None:
        shed = self.queue.shed(pool, keep=self.kind(keep))
        members = [(made, its) for made, its_pool, its in self.model.values() if its_pool == pool]
        assert (shed is None) is (not members)
        if shed is not None:
            others = [one for one in members if self.kind(one[0].template) != self.kind(keep)] or members
            bound = [one for one in others if one[1] is not None] or others
            assert shed in [made for made, _ in bound]
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
        for template in TEMPLATES:
            ours = [one for one in self.model.values() if self.kind(one[0].template) == self.kind(template)]
            assert self.queue.has_bound(self.kind(template)) == any(bound_to for _, _, bound_to in ours)
            for pool in POOLS[1:]:
                assert self.queue.count(pool) == sum(its == pool for _, its, _ in self.model.values())
                fits = [
                    one
                    for one in ours
                    if one[1] == pool
                    and one[2] in (None, "alpha")
                    and (one[0].template.image == template.image or not one[0].keeps_image)
                ]
                assert self.queue.count_of(pool, template, tenant="alpha") == len(fits)

    def teardown(self) -> None:
        for made in list(self.queue):
            self.queue.discard(made.id)
        assert not self.queue._by_kind
        assert not self.queue._in_pools


class MixedQueueMachine(ReadyQueueMachine):
    rank = staticmethod(by_chance)


class QueueOfAnyImageMachine(ReadyQueueMachine):
    kind = staticmethod(by_size)


class QueueOfSomeThatKeepTheirImageMachine(QueueOfAnyImageMachine):
    some_keep_their_image = True


TestReadyQueue = ReadyQueueMachine.TestCase
TestQueueOfSomeThatKeepTheirImage = QueueOfSomeThatKeepTheirImageMachine.TestCase
TestQueueOfSomeThatKeepTheirImage.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueOfAnyImage = QueueOfAnyImageMachine.TestCase
TestMixedQueue = MixedQueueMachine.TestCase
TestReadyQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMixedQueue.settings = TestReadyQueue.settings
TestQueueOfAnyImage.settings = TestReadyQueue.settings


def test_first_come_is_first_served() -> None:
    queue = ReadyQueue(rank=first_come())
    for number in (5, 3, 4):
        queue.put(instance(number, TEMPLATES[0], "p"))
    taken = [queue.take(TEMPLATES[0].key) for _ in range(3)]
    assert [made.id[-1] for made in taken if made is not None] == ["5", "3", "4"]


def test_no_operation_looks_at_every_instance() -> None:
    """A create found none of its tenant among 10,000 by asking each of them for its pool and its tenant."""
    queue = ReadyQueue(rank=first_come())
    for number in range(10_000):
        tenant = f"tenant-{number % 1000}"
        queue.put(instance(number, TEMPLATES[0], f"pool-{number % 10}"), bound_to=tenant)
    asked: list[str] = []

    def allowed(pool: str) -> bool:
        asked.append(pool)
        return True

    assert queue.take(TEMPLATES[0].key, tenant="another", allowed=allowed) is None
    assert queue.take(TEMPLATES[0].key, tenant="tenant-7", allowed=allowed) is not None
    assert len(asked) <= 10


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


def test_a_popular_image_does_not_make_the_queue_look_at_every_node() -> None:
    queue = ReadyQueue(rank=first_come(), kind=by_size)
    for number in range(1000):
        queue.put(instance(number, TEMPLATES[0], "p", node=f"node-{number}"))
    asked: list[str] = []

    def allowed(pool: str) -> bool:
        asked.append(pool)
        return True

    everywhere = {f"node-{number}" for number in range(1000)}
    taken = queue.take(TEMPLATES[0].size_class, image="b", allowed=allowed, nodes=everywhere)
    assert taken is not None
    assert len(asked) == 1

    asked.clear()
    many = {f"node-{number}" for number in range(1000) if number % 10 == 5}
    taken = queue.take(TEMPLATES[0].size_class, image="b", allowed=allowed, nodes=many)
    assert taken is not None
    assert taken.node == "node-5"
    assert len(asked) <= 3


def test_one_that_got_to_take_any_image_is_told_apart() -> None:
    queue = ReadyQueue(rank=first_come(), kind=by_size)
    made = instance(1, TEMPLATES[0], "p", keeps_image=True)
    queue.put(made)
    assert not queue.is_outdated(made)
    made.keeps_image = False
    assert queue.is_outdated(made)
    assert queue.take(TEMPLATES[0].size_class, image="b") is None
    queue.discard(made.id)
    queue.put(made)
    assert queue.take(TEMPLATES[0].size_class, image="b") is made
