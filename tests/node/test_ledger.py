"""The ledger as a state machine: the budget holds as far as it can, and nothing in use ever goes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sandlot_node.images import ImageId, SlotId
from sandlot_node.ledger import Ledger

IMAGES = [ImageId(f"sha256:{number:032x}") for number in range(6)]
SLOTS = [SlotId(f"slot-{number}") for number in range(4)]
# Images share layers: by number, each is of the layers whose bit it has.
PARTS = {
    image: {f"layer-{bit}": 10 + bit for bit in range(4) if (number + 1) >> bit & 1}
    for number, image in enumerate(IMAGES)
}
images, slots = st.sampled_from(IMAGES), st.sampled_from(SLOTS)


class Life(RuleBasedStateMachine):
    """Beside the ledger, a model that is as simple as can be."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(budget=25, hold=5)
        self.now = 0.0
        self.last: dict[ImageId, float] = {}
        self.uses: dict[ImageId, dict[SlotId, float]] = {}
        self.unseen: dict[SlotId, int] = {}

    @rule(image=images)
    def add(self, image: ImageId) -> None:
        self.ledger.add(image, PARTS[image], name="name", now=self.now)
        self.last[image] = self.now
        self.uses.setdefault(image, {})

    @rule(image=images)
    def touch(self, image: ImageId) -> None:
        assert self.ledger.touch(image, now=self.now) is (image in self.last)
        if image in self.last:
            self.last[image] = self.now

    @rule(image=images, slot=slots)
    def use(self, image: ImageId, slot: SlotId) -> None:
        assert self.ledger.use(image, slot, now=self.now) is (image in self.last)
        if image in self.last:
            self.last[image] = self.now
            self.uses[image][slot] = self.now

    @rule(image=images, slot=slots, ago=st.none() | st.floats(min_value=0, max_value=30))
    def unuse(self, image: ImageId, slot: SlotId, ago: float | None) -> None:
        until = None if ago is None else self.now - ago
        self.ledger.unuse(image, slot, now=self.now, until=until)
        since = self.uses.get(image, {}).get(slot)
        if since is not None and (until is None or since <= until):
            del self.uses[image][slot]
            self.last[image] = self.now

    @rule(seconds=st.floats(min_value=0.1, max_value=20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(living=st.sets(slots))
    def drop_dead(self, living: set[SlotId]) -> None:
        dropped = self.ledger.drop_dead(living, now=self.now, grace=10)
        used = {slot for uses in self.uses.values() for slot in uses}
        for slot in SLOTS:
            self.unseen[slot] = self.unseen.get(slot, 0) + 1 if slot in used - living else 0
        wanted = []
        for uses in self.uses.values():
            for slot in [
                slot for slot, since in uses.items() if self.unseen[slot] >= 3 and since + 10 <= self.now
            ]:
                del uses[slot]
                wanted.append(slot)
        assert sorted(dropped) == sorted(wanted)

    @rule(keep=st.none() | images)
    def evict(self, keep: ImageId | None) -> None:
        before = self.ledger.used()
        victims = self.ledger.victims(now=self.now, keep=keep)
        assert keep not in victims
        for image in victims:
            assert not self.uses[image], "it is in use"
            assert self.last[image] + 5 <= self.now, "someone has just asked for it"
        for stays in set(self.ledger.idle(now=self.now)) - {*victims, keep}:
            assert all(self.last[image] <= self.last[stays] for image in victims), (
                "not the least recently used"
            )
        if victims:
            assert before > self.ledger.budget
            assert self.ledger.used(without=victims[:-1]) > self.ledger.budget, (
                "the last one went for nothing"
            )
        rest = self.ledger.used(without=victims)
        assert rest <= self.ledger.budget or not set(self.ledger.idle(now=self.now)) - {*victims, keep}
        for image in victims:
            self.ledger.remove(image)
            del self.last[image], self.uses[image]

    @invariant()
    def they_agree(self) -> None:
        assert {image: entry.last_used for image, entry in self.ledger.entries.items()} == self.last
        assert {image: entry.uses for image, entry in self.ledger.entries.items()} == self.uses
        layers = {name: size for image in self.last for name, size in PARTS[image].items()}
        assert self.ledger.used() == sum(layers.values())


TestLife = Life.TestCase
