"""A directory of checkpoints, whatever order the calls of several gateways have and wherever they die; ids are reused.

The directory is a real one; a gateway is a thread that this test lets go on from one call of the system to the next.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Deleted, Occupied
from sandlot_gateway.checkpoints.interface import Writing
from sandlot_gateway.checkpoints.rules import StoreLimits
from sandlot_gateway.checkpoints.store import Store

from tests.gateway.stepped import Stepped

BLOCKS = [bytes([number]) * 9000 + b"\0\0\xff\xff" for number in range(4)]
IDS = [f"cp-{number:024x}" for number in range(3)]


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.saved: dict[float, tuple[Checkpoint, bytes]] = {}  # by the time of their creation
        self.ending: set[float] = set()  # those that somebody began to delete
        self.parts: list[Writing] = []

    def store(self) -> Store:
        return Store(self.directory, limits=StoreLimits())

    def writes(self, checkpoint_id: str, blocks: list[int]) -> None:
        store = self.store()
        found = store.get(checkpoint_id)
        if found is not None:
            if found.state is State.PENDING:
                return
            self.delete(store, found)
        now = time.time()
        made = Checkpoint(checkpoint_id, "a", SandboxId("sb-1"), "host", 1, now, now)
        try:
            part = store.begin(made)
        except Occupied:
            return
        self.parts.append(part)
        content = b"".join(BLOCKS[one] for one in blocks)
        try:
            part.write(content)
            store.finish(made, part)
            self.saved[made.created_at] = made, content
        except Deleted:
            assert made.created_at in self.ending
            store.release(made, part)

    def deletes(self, checkpoint_id: str) -> None:
        store = self.store()
        found = store.get(checkpoint_id)
        if found is not None:
            self.delete(store, found)

    def delete(self, store: Store, found: Checkpoint) -> None:
        self.ending.add(found.created_at)
        store.delete(found)

    def revokes(self, checkpoint_id: str) -> None:
        store = self.store()
        found = store.get(checkpoint_id)
        if found is not None and found.state is State.DURABLE:
            self.ending.add(found.created_at)
            store.revoke(found, "late")

    def lists(self) -> None:
        store = self.store()
        store.all()
        store.sweep()
        store.used()

    def check(self) -> None:
        store = self.store()
        for created_at, (made, content) in self.saved.items():
            if created_at not in self.ending:
                with closing(store.open(made)) as archive:
                    assert b"".join(iter(lambda archive=archive: archive.read(10_000), b"")) == content


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_checkpoint_is_lost_and_nothing_is_left_for_ever(data: st.DataObject) -> None:
    contents = st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=4)
    ids = st.sampled_from(IDS)
    chosen = random.Random(data.draw(st.integers(0, 1 << 32)))
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        for one in IDS[:2]:
            world.writes(one, data.draw(contents))
        works: list[Callable[[], None]] = [world.lists]
        for one, blocks in data.draw(st.lists(st.tuples(ids, contents), min_size=2, max_size=4)):
            works.append(lambda one=one, blocks=blocks: world.writes(one, blocks))
        for kind in (world.deletes, world.revokes):
            works += [lambda one=one, kind=kind: kind(one) for one in data.draw(st.lists(ids, max_size=2))]
        gateways = [Stepped(work) for work in works]
        while live := [one for one in gateways if not one.is_over]:
            gateway = chosen.choice(live)
            dies = chosen.random() < 0.03
            for _ in range(chosen.choice((1, 1, 2, 5, 15))):
                if not gateway.is_over:
                    gateway.step(dies=dies)
                    world.check()
            if dies:
                gateway.run()
        emptied(world)


def emptied(world: World) -> None:
    """Delete all, as gateways that come later do: nothing is left."""
    for part in world.parts:
        part.close()  # as the kernel does
    store = world.store()
    for one in IDS:
        world.deletes(one)
        assert store.get(one) is None
        world.check()
    for path in world.directory.iterdir():
        os.utime(path, (0, 0))
    store.sweep()
    assert list(world.directory.iterdir()) == []
