"""Output of a command arrives in pieces that hold whole characters, and byte for byte what was written."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st
from sandlot_contract.frames import STDERR, STDOUT
from sandlot_gateway.rpc.characters import Characters

from tests.prime_rpc.support import Box, Seen, bash, new_session


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


def passed(frames: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    characters = Characters()
    came = [(kind, characters.feed(kind, payload)) for kind, payload in frames]
    return [frame for frame in [*came, *characters.rest()] if frame[1]]


def joined(frames: list[tuple[int, bytes]], kind: int) -> bytes:
    return b"".join(payload for each, payload in frames if each == kind)


@given(st.text(min_size=1), st.lists(st.integers(0, 200)))
def test_each_frame_of_text_can_be_decoded_alone(text: str, cuts: list[int]):
    frames = passed([(STDOUT, piece) for piece in pieces_of(text.encode(), cuts)])
    assert "".join(payload.decode() for _, payload in frames) == text


BYTES = st.binary(max_size=12) | st.text(max_size=4).map(str.encode) | st.sampled_from([b"\xf0\x9f", b"\xe2"])


@given(st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), BYTES)))
def test_any_bytes_of_two_streams_come_out_as_they_went_in(frames: list[tuple[int, bytes]]):
    came = passed(frames)
    assert joined(came, STDOUT) == joined(frames, STDOUT)
    assert joined(came, STDERR) == joined(frames, STDERR)


@given(st.binary())
@example(b"\xed\xa0")  # the beginning of a surrogate, which is no character of UTF-8
@example(b"a\xed\xbf")
def test_only_the_beginning_of_a_character_waits(data: bytes):
    characters = Characters()
    sent = characters.feed(STDOUT, data)
    waits = b"".join(payload for _, payload in characters.rest())
    assert sent + waits == data
    assert len(waits) <= 3
    completions = ([*b] for b in (b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\x90\x80\x80", b"\xa0\x80"))
    assert not waits or any(is_text(waits + bytes(more)) for more in completions)


def test_the_first_byte_of_a_surrogate_waits_only_until_the_second():
    characters = Characters()
    assert [characters.feed(STDOUT, piece) for piece in (b"\xed", b"\xa0", b"\x80")] == [
        b"",
        b"\xed\xa0",
        b"\x80",
    ]
    assert not characters.waiting


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


async def test_a_character_that_is_written_in_two_parts_arrives_in_one(box: Box):
    pieces: list[bytes] = []
    go = f"/tmp/{new_session()}"
    waits = f"until [ -e {go} ]; do sleep 0.02; done"
    async for message in box.start(bash(f"printf 'a\\342\\202'; {waits}; printf '\\254b\\342\\202'")):
        if message.event.HasField("data"):
            pieces.append(message.event.data.stdout)
            if len(pieces) == 1:
                await box.run(f"touch {go}")
    assert pieces == [b"a", "€b".encode(), b"\xe2\x82"]


async def test_who_answers_the_beginning_of_a_character_is_not_kept_waiting(box: Box):
    session = new_session()
    command = bash("printf '\\342'; head -c 1 > /dev/null; printf '\\202\\254'", session_uuid=session)
    command.stdin = True
    stream, seen = box.start(command), Seen()
    await seen.until(stream, b"\xe2")
    await box.write(session, b"x")
    await seen.read(stream)
    assert seen.stdout == "€".encode()
