"""Archives are cut into chunks where their bytes say, and manifests and chunks are what was written, or an error."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandlot_gateway.checkpoints.chunks import MAX_CHUNK, MIN_CHUNK, Chunker
from sandlot_gateway.checkpoints.errors import Damaged
from sandlot_gateway.checkpoints.manifest import Chunk, Manifest, ManifestWriter, read_manifest
from sandlot_gateway.checkpoints.packing import Known, Packing, worthwhile
from sandlot_gateway.checkpoints.rules import pack_name

END = b"\0\0\xff\xff"
OWN, OTHER, THIRD = (pack_name("cp-" + digit * 24) for digit in "012")


def cut(pieces: list[bytes]) -> list[bytes]:
    chunker = Chunker()
    found = [chunk for piece in pieces for chunk in chunker.feed(piece)]
    return [*found, chunker.rest()]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3 * MIN_CHUNK), max_size=20),
    cuts=st.lists(st.integers(1, 4 * MIN_CHUNK), min_size=1, max_size=8),
    filling=st.sampled_from([b"\0", b"\xff", b"\0\0\xff", b"x"]),
)
def test_the_same_bytes_are_cut_in_the_same_places_however_they_come(
    sizes: list[int], cuts: list[int], filling: bytes
) -> None:
    data = b"".join((filling * size)[:size] + END for size in sizes)
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        step = cuts[len(pieces) % len(cuts)]
        pieces.append(data[at : at + step])
        at += step
    chunks = cut(pieces)
    assert b"".join(chunks) == data
    assert chunks == cut([data])
    assert all(MIN_CHUNK <= len(one) <= MAX_CHUNK for one in chunks[:-1])


def test_bytes_without_a_mark_are_cut_after_so_many() -> None:
    data = random.randbytes(1) * (2 * MAX_CHUNK + 5)
    assert [len(one) for one in cut([data])] == [MAX_CHUNK, MAX_CHUNK, 5]


def test_after_a_change_the_cuts_are_the_same_again() -> None:
    chance = random.Random(1)  # of lengths there are some, though rare, after which it takes longer
    blocks = [chance.randbytes(chance.randint(1000, 30_000)) + END for _ in range(300)]
    changed = [*blocks[:100], chance.randbytes(12_345) + END, *blocks[101:]]
    before, after = set(cut([b"".join(blocks)])), set(cut([b"".join(changed)]))
    assert len(after - before) <= 4


def test_code_that_writes_only_marks_makes_no_more_chunks_than_others() -> None:
    chunks = cut([END * 100_000])
    assert len(chunks) <= 400_000 // MIN_CHUNK + 1


def test_the_chunks_of_a_large_archive_are_larger() -> None:
    chunker, block = Chunker(), (bytes(MIN_CHUNK - len(END)) + END) * 128
    sizes = [len(chunk) for _ in range(400) for chunk in chunker.feed(block)]
    assert sum(sizes) + len(chunker.rest()) == 400 * len(block)
    assert len(sizes) < 3 * 8192  # 400 MiB, of which 8 KiB each would be 51,200
    assert max(sizes) <= MAX_CHUNK


def encoded(count: int) -> bytes:
    writer = ManifestWriter(OWN)
    for number in range(count):
        writer.add(Chunk((OWN, OTHER)[number % 2], number, 7, number.to_bytes(32, "big")))
    return writer.encoded()


def found(data: bytes) -> Manifest:
    return read_manifest(len(data), lambda offset, size: data[offset : offset + size])


@pytest.mark.parametrize("count", [0, 1, 5000], ids=["none", "one", "more than is read ahead"])
def test_a_manifest_is_read_as_it_was_written(count: int) -> None:
    manifest = found(b"chunks" + encoded(count))
    assert manifest.own == OWN
    assert [one.offset for one in manifest] == list(range(count))
    assert all(one.pack == (OWN, OTHER)[one.offset % 2] for one in manifest)


@pytest.mark.parametrize("count", [1, 5000])
def test_a_damaged_manifest_is_none(count: int) -> None:
    data = encoded(count)
    for number in range(0, len(data), max(1, len(data) // 97)):
        changed = bytearray(data)
        changed[number] ^= 1
        with pytest.raises(Damaged, match="its manifest"):
            found(bytes(changed))
        with pytest.raises(Damaged, match="its manifest is cut off"):
            found(data[:number])


def test_a_manifest_names_packs_and_nothing_else() -> None:
    writer = ManifestWriter(OWN)
    writer.add(Chunk("../secret", 0, 7, bytes(32)))
    with pytest.raises(Damaged, match="names a pack that can be none"):
        found(writer.encoded())


def test_a_pack_of_which_little_is_used_is_not_held() -> None:
    writer = ManifestWriter(OWN)
    for pack, size in ((OTHER, 10), (OWN, 1), (THIRD, 30), (THIRD, 30)):
        writer.add(Chunk(pack, 0, size, bytes(32)))
    manifest = found(writer.encoded())
    sizes = {OWN: 1, OTHER: 100, THIRD: 100}
    assert worthwhile(manifest, sizes=sizes.__getitem__) == [OWN, THIRD]


def test_what_is_known_is_not_stored() -> None:
    stored: list[bytes] = []
    blocks = [random.randbytes(MIN_CHUNK) + END for _ in range(4)]
    first = Packing(OTHER, store=stored.append, known=Known)
    assert first.write(b"".join(blocks)) == 0
    known = Known()
    for chunk in found(first.manifest()):
        known.add(chunk)
    again: list[bytes] = []
    second = Packing(OWN, store=again.append, known=lambda: known)
    assert second.write(b"".join(blocks[:3]) + b"rest") == 3 * len(blocks[0])
    assert second.flush() == 0
    assert (again, second.used()) == ([b"rest"], {OWN, OTHER})
