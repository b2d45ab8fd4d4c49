"""The frame decoder: any split gives the same frames, and its offset is where to go on."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot._protocol.frames import Frame, FrameDecoder, FrameError, encode

frame_lists = st.lists(
    st.tuples(st.sampled_from([b"o", b"e", b"k", b"s"]), st.binary(max_size=60)), max_size=12
)


def plain(frames: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(encode(kind, b"" if kind == b"k" else payload) for kind, payload in frames)


@given(frames=frame_lists, cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_every_split_gives_the_same_frames(frames: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data = plain(frames) + encode(b"x", b"{}")
    decoder = FrameDecoder()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    found: list[Frame] = []
    for begin, end in pairwise(edges):
        found += decoder.feed(data[begin:end])
    kept = [frame for frame in frames if frame[0] != b"k"]
    assert found == [*kept, (b"x", b"{}")]
    assert decoder.ended
    assert decoder.offset == len(plain(kept)) + 7


@given(frames=frame_lists, cut=st.integers(0, 2000), keepalives=st.integers(0, 3))
def test_a_stream_resumed_from_the_offset_has_no_gap_and_no_repeat(
    frames: list[tuple[bytes, bytes]], cut: int, keepalives: int
) -> None:
    kept = [frame for frame in frames if frame[0] != b"k"]
    stored = plain(kept) + encode(b"x", b"{}")
    decoder = FrameDecoder()
    first = decoder.feed(encode(b"k", b"") * keepalives + stored[: cut % (len(stored) + 1)])
    decoder.restart()
    second = decoder.feed(stored[decoder.offset :])
    assert first + second == [*kept, (b"x", b"{}")]


@pytest.mark.parametrize(
    "data", [b"q\0\0\0\0", b"o\xff\xff\xff\xff", encode(b"x", b"{}") + encode(b"o", b"late")]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameDecoder().feed(data)
