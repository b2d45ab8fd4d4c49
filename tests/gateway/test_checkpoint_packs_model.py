"""Packs in a bucket, whatever order the requests of several gateways have and wherever they die.

Each request is one step of a thread that this test lets go on; the requests have S3's conditions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_contract.ids import SandboxId
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Deleted
from sandlot_gateway.checkpoints.manifest import Manifest, read_manifest
from sandlot_gateway.checkpoints.packing import Packing
from sandlot_gateway.checkpoints.rules import ABANDONED_AFTER
from sandlot_gateway.checkpoints.s3.bucket import Conflict, Object
from sandlot_gateway.checkpoints.s3.packs import Packs
from sandlot_gateway.checkpoints.s3.records import Held, Record, Seen

from tests.gateway.held_thread import HeldThread, current

BLOCKS = [bytes([number]) * 9000 + b"\0\0\xff\xff" for number in range(4)]
SIZE = 50_000  # of every pack, as far as the model cares: no use of one is too little


class World:
    """The bucket: objects with holders, packs, and documents."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.packs: dict[str, bytes] = {}  # their manifests
        self.documents: dict[str, Record] = {}
        self.lists: list[Record] = []

    def request(self) -> None:
        if (gateway := current()) is not None:
            gateway.pause()

    # -- as a bucket

    def get(self, key: str, *, patient: bool = False) -> Object | None:
        self.request()
        data = self.objects.get(key)
        return Object(key, _etag(data), 0.0, len(data), data) if data is not None else None

    def write(self, key: str, data: bytes, *, over: str | None) -> str:
        self.request()
        there = self.objects.get(key)
        if (there is not None) if over is None else (there is None or _etag(there) != over):
            raise Conflict(key)
        self.objects[key] = data
        return _etag(data)

    def delete_as(self, key: str, *, etag: str) -> None:
        self.request()
        there = self.objects.get(key)
        if there is not None and _etag(there) != etag:
            raise Conflict(key)
        self.objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[Object]:
        self.request()
        for key, data in sorted(self.objects.items()):
            if key.startswith(prefix):
                yield Object(key, _etag(data), ABANDONED_AFTER + 1.0, len(data))

    # -- as archives

    def manifest(self, pack: str, *, size: int) -> Manifest:
        self.request()
        if pack not in self.packs:
            raise FileNotFoundError(2, "gone")
        data = self.packs[pack]
        return read_manifest(len(data), lambda offset, count: data[offset : offset + count])

    def delete(self, pack: str, *, complete: bool) -> None:
        self.request()
        self.packs.pop(pack, None)

    # -- documents

    def read(self) -> list[Record]:
        """As a list that takes a while: what is read last is newer."""
        found: list[Record] = []
        for key in sorted(self.documents):
            self.request()
            if key in self.documents:
                found.append(_copy(self.documents[key]))
        return found

    def change(self, record: Record) -> None:
        """As a conditional write of a writer."""
        self.request()
        there = self.documents.get(record.checkpoint.id)
        if there is None or there.deleted or there.checkpoint.state is not State.PENDING:
            raise Deleted
        self.documents[record.checkpoint.id] = _copy(record)


class Part:
    def __init__(self, world: World, record: Record) -> None:
        self._world = world
        self.record = record

    def publish(self, held: list[Held]) -> None:
        self.record.held = held
        self._world.change(self.record)


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _copy(record: Record) -> Record:
    return msgspec.json.decode(msgspec.json.encode(record), type=Record)


def writes(world: World, packs: Packs, number: int, blocks: list[int]) -> None:
    checkpoint = Checkpoint(
        f"cp-{number:024x}", "a", SandboxId("sb-1"), "host", 1, 0.0, float(number), packed=True
    )
    record = Record(checkpoint, archive=f"{checkpoint.id}-{number:016x}")
    found = [one for one in world.read() if not one.deleted]
    world.request()
    world.documents[checkpoint.id] = _copy(record)
    part = Part(world, record)
    try:
        seen = [Seen(one, "", 0.0) for one in found]
        packing = Packing(
            record.archive, store=lambda data: None, known=lambda: packs.hold(cast("Any", part), seen)
        )
        packing.write(b"".join(BLOCKS[one] for one in blocks))
        packing.flush()
        world.request()
        world.packs[record.archive] = packing.manifest()
        unused = [one for one in record.held if one.pack not in packing.used()]
        record.held = [one for one in record.held if one not in unused]
        checkpoint.state, checkpoint.stored_bytes = State.DURABLE, SIZE
        world.change(record)
        packs.let_go(record.archive, unused)
    except Deleted:
        packs.leave(record, complete=False)


def deletes(world: World, packs: Packs, number: int) -> None:
    key = f"cp-{number:024x}"
    world.request()
    record = world.documents.get(key)
    if record is None:
        return
    record.deleted = True
    if record.checkpoint.state is State.PENDING:
        return  # its writer goes on
    packs.leave(_copy(record), complete=True)
    world.request()
    world.documents.pop(key, None)


def sweeps(world: World, packs: Packs) -> None:
    listed = packs.listed()
    found = world.read()
    named = {one.archive for one in found} | {held.pack for one in found for held in one.held}
    packs.sweep(listed, named=named, ids=())


def check(world: World) -> None:
    for record in world.documents.values():
        if record.checkpoint.state is State.DURABLE and not record.deleted:
            data = world.packs[record.archive]
            manifest = read_manifest(len(data), lambda at, count, data=data: data[at : at + count])
            assert set(manifest.packs) <= world.packs.keys(), record
            assert set(manifest.packs) <= {record.archive, *(one.pack for one in record.held)}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_checkpoint_loses_a_pack_and_none_is_left_for_ever(data: st.DataObject) -> None:
    world = World()
    packs = Packs(cast("Any", world), cast("Any", world))
    contents = st.lists(st.integers(0, len(BLOCKS) - 1), min_size=1, max_size=4)
    for number in range(2):
        writes(world, packs, number, data.draw(contents))
    works: list[Callable[[], None]] = [lambda: sweeps(world, packs)]
    for number in range(2, 5):
        blocks = data.draw(contents)
        works.append(lambda number=number, blocks=blocks: writes(world, packs, number, blocks))
    for number in data.draw(st.lists(st.integers(0, 4), max_size=4)):
        works.append(lambda number=number: deletes(world, packs, number))
    gateways = [HeldThread(work) for work in works]
    while live := [one for one in gateways if not one.is_over]:
        number = data.draw(st.integers(0, 20 * len(live) - 1))
        live[number % len(live)].step(dies=number // len(live) == 19)
        check(world)
    # The dead ones' documents become FAILED, all others are deleted: nothing is left.
    for record in list(world.documents.values()):
        packs.leave(_copy(record), complete=False)
        del world.documents[record.checkpoint.id]
        check(world)
    sweeps(world, packs)
    assert not [key for key in world.objects if key.startswith("packs/")]
    # Where a gateway died between the holders' object and the pack, the sweep of archives takes it away.
    for pack in world.packs:
        assert f"packs/{pack}.json" not in world.objects
