"""The sidecar's parsers, cut at every place: multipart, ranges, the frame log, and the executor's wire."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import socket
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sandlot_contract.frames import STDERR, STDOUT
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.op import Op
from sandlot_sidecar.executor import wire
from sandlot_sidecar.server import documents, framelog, multipart, output
from sandlot_sidecar.server.framelog import FrameLog
from sandlot_sidecar.server.multipart import BEGIN, DATA, FINISH, Multipart, boundary_of, parameter
from sandlot_sidecar.server.ranges import parse_range, window
from sandlot_sidecar.server.startcommand import TailLog

from tests.sidecar.executed_lines import lines_of
from tests.sidecar.support import parse_frames, payload

BOUNDARY = b"xYz"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The pieces between the places."""
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)
# Contents that are all but the boundary are the hard ones.
HARD = st.lists(st.sampled_from([b"\r", b"\n", b"--", b"xYz", b"\r\n--xY", b"a", b"\0"])).map(b"".join)
CONTENT = HARD.filter(lambda content: b"\r\n--xYz" not in content)


@given(parts=st.lists(CONTENT, min_size=1, max_size=3), places=PLACES)
@example(parts=[b""], places=[])
def test_multipart_gives_every_part_whole_however_it_is_cut(parts: list[bytes], places: list[int]) -> None:
    body = b"a preamble\r\n"
    for number, content in enumerate(parts):
        disposition = b'Content-Disposition: form-data; name="p%d"; filename="a\\"b"' % number
        body += b"--xYz\r\n" + disposition + b"\r\nX: y\r\n\r\n" + content + b"\r\n"
    body += b"--xYz--\r\nan epilogue"
    parser = Multipart(BOUNDARY)
    seen: list[tuple[bytes, bytes]] = []
    open_part = False
    for piece in cut(body, places):
        for kind, value in parser.feed(piece):
            if kind == BEGIN:
                assert not open_part
                open_part = True
                seen.append((value, b""))
            elif kind == DATA:
                assert value
                seen[-1] = (seen[-1][0], seen[-1][1] + value)
            else:
                assert kind == FINISH
                open_part = False
    assert parser.complete
    assert not open_part
    assert seen == [(b"p%d" % number, content) for number, content in enumerate(parts)]


@given(data=st.binary(max_size=300), places=PLACES)
def test_multipart_takes_or_refuses_anything(data: bytes, places: list[int]) -> None:
    parser = Multipart(BOUNDARY)
    try:
        for piece in cut(data, places):
            parser.feed(piece)
    except ApiError as error:
        assert error.status == 400


def test_a_multipart_body_has_a_thousand_parts_at_most() -> None:
    empty = b"--xYz\r\n\r\n\r\n"
    fits = Multipart(BOUNDARY)
    assert len(fits.feed(empty * 1000 + b"--xYz--")) == 2000
    assert fits.complete
    parser = Multipart(BOUNDARY)

    def feed() -> None:
        with pytest.raises(ApiError, match="over 1000 parts") as refused:
            parser.feed(empty * 20_000)
        assert refused.value.status == 400

    assert lines_of(multipart, feed) < 60_000


@given(st.text(max_size=60))
def test_a_content_type_has_a_boundary_or_is_refused(text: str) -> None:
    try:
        assert 0 < len(boundary_of(text)) <= 200
    except ApiError as error:
        assert error.status == 400


@given(header=st.from_regex(r"\A(bytes=)?[0-9]{0,21}-?[0-9]{0,21}\Z") | st.text(), size=st.integers(0, 2000))
def test_a_range_is_inside_of_the_file(header: str, size: int) -> None:
    try:
        found = parse_range(header, size=size)
    except ApiError as error:
        assert error.status == 416
        return
    if found is not None:
        start, length = found
        assert length > 0
        assert 0 <= start < start + length <= size


@pytest.mark.parametrize("digits", ["9223372036854775807", "9" * 19, "9" * 20, "9" * 10_000])
def test_a_range_of_any_number_is_a_range(digits: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_range(f"bytes={digits}-", size=100)
    assert refused.value.status == 416
    assert parse_range(f"bytes=10-{digits}", size=100) == (10, 90)
    assert parse_range(f"bytes=-{digits}", size=100) == (0, 100)
    assert parse_range(f"bytes={'0' * 20}5-{'0' * 5000}7", size=100) == (5, 3)


def test_a_header_of_many_parameters_is_read_once() -> None:
    """So many that to copy what is left for each would take minutes; a form has a thousand parts with 16 KiB of header."""
    value = b"form-data" + b";a=b" * 500_000 + b'; name="f\\"ile" ;x'
    assert parameter(value, b"name") == b'f"ile'
    assert parameter(value, b"other") is None


@given(
    size=st.integers(0, 100),
    offset=st.integers(-150, 150),
    length=st.none() | st.integers(0, 150),
)
def test_a_window_is_inside_of_the_file(size: int, offset: int, length: int | None) -> None:
    try:
        start, found = window(size=size, offset=offset, length=length, maximum=60)
    except ApiError as error:
        assert error.status == 413
        assert length is None
        return
    assert 0 <= start <= start + found <= size
    assert found <= 60


@pytest.fixture
def spill(tmp_path: Path) -> Path:
    return tmp_path


PIECES = st.lists(st.tuples(st.sampled_from("oe"), st.binary(min_size=1, max_size=40)), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=PIECES, limit=st.integers(0, 400), memory=st.integers(0, 200), reads=st.sets(st.integers(0, 30))
)
def test_the_frame_log_keeps_order_limit_and_offsets(
    spill: Path, pieces: list[tuple[str, bytes]], limit: int, memory: int, reads: set[int]
) -> None:
    def open_file() -> int:
        return os.open(spill, os.O_TMPFILE | os.O_RDWR, 0o600)

    log = FrameLog(limit=limit, memory=memory, open_file=open_file)
    written = {"o": b"", "e": b""}
    kept = {"o": b"", "e": b""}
    room = limit
    stable = b""  # what a reader was given must never change
    for number, (kind, data) in enumerate(pieces):
        log.append(ord(kind), data)
        written[kind] += data
        kept[kind] += data[:room]
        room -= min(room, len(data))
        if number in reads:
            now = read_all(log)
            assert now.startswith(stable)
            stable = now
    whole = read_all(log)
    frames = parse_frames(whole)
    assert whole.startswith(stable)
    assert len(whole) == log.size
    assert log.truncated == (kept != written)
    assert (log.stdout_bytes, log.stderr_bytes) == (len(written["o"]), len(written["e"]))
    for kind in "oe":
        assert payload(frames, kind) == kept[kind]
        assert b"".join(log.output(ord(kind))) == log.simple_output(ord(kind)) == kept[kind]
        assert b"".join(log.output(ord(kind), offset=3, length=7)) == kept[kind][3:10]
        assert log.kept_bytes(ord(kind)) == len(kept[kind])
    boundaries = {0}
    for _, data in frames:
        boundaries.add(max(boundaries) + 5 + len(data))
    assert {offset for offset in range(-1, log.size + 2) if log.is_boundary(offset)} == boundaries
    log.close()


def read_all(log: FrameLog) -> bytes:
    data = b""
    while piece := log.read(len(data), limit=64):
        data += piece
    return data


@given(
    messages=st.lists(
        st.tuples(
            st.dictionaries(st.text(max_size=5).filter(lambda key: key != "fds"), st.text(max_size=200)),
            st.integers(0, 3),
        ),
        max_size=6,
    )
)
def test_the_wire_brings_messages_with_their_own_descriptors(
    messages: list[tuple[dict[str, str], int]],
) -> None:
    ours, theirs = socket.socketpair()
    pipes: list[tuple[int, int]] = []
    try:
        for message, count in messages:
            made = [os.pipe() for _ in range(count)]
            pipes += made
            wire.send(ours, message, [read for read, _ in made])
        ours.shutdown(socket.SHUT_WR)
        decoder, received = wire.Decoder(), []
        while (some := decoder.receive(theirs)) is not None:
            received += some
        assert [(message, len(fds)) for message, fds in received] == messages
        inodes = [os.fstat(read).st_ino for read, _ in pipes]
        assert [os.fstat(fd).st_ino for _, fds in received for fd in fds] == inodes
    finally:
        for _, fds in received:
            wire.close_all(fds)
        for read, write in pipes:
            os.close(read)
            os.close(write)
        ours.close()
        theirs.close()


@given(data=st.binary(max_size=200))
def test_the_wire_refuses_what_is_no_message(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        decoder = wire.Decoder()
        try:
            while (messages := decoder.receive(theirs)) is not None:
                assert all(isinstance(message, dict) for message, _ in messages)
        except wire.WireError:
            pass


def frames_by_turns(count: int) -> FrameLog:
    """So many frames of a byte, half of them on each stream."""

    def open_file() -> int:
        raise OSError

    log = FrameLog(limit=1 << 30, memory=1 << 30, open_file=open_file)
    for _ in range(count // 2):
        log.append(STDOUT, b"o")
        log.append(STDERR, b"e")
    return log


def test_a_log_of_many_frames_is_counted_without_a_walk() -> None:
    log = frames_by_turns(20_000)
    assert lines_of(framelog, lambda: log.kept_bytes(STDOUT) + log.kept_bytes(STDERR)) < 10
    assert (log.kept_bytes(STDOUT), log.kept_bytes(STDERR), log.frames) == (10_000, 10_000, 20_000)


def test_where_a_reader_stopped_is_found_without_walking_a_frame_twice() -> None:
    log = frames_by_turns(20_000)
    log.read(0, limit=60_000)
    assert log.unread() == 60_000
    assert lines_of(framelog, log.unread) < 30
    log.read(60_000, limit=8)  # to the middle of the second frame
    found: list[int] = []
    assert lines_of(framelog, lambda: found.append(log.unread())) < 60
    assert found == [60_006]


def test_a_log_of_many_frames_is_given_in_large_pieces_and_in_turns() -> None:
    log, pieces, costs = frames_by_turns(200_000), list[bytes](), list[int]()
    walk = log.output(STDERR, offset=10)
    with contextlib.suppress(StopIteration):
        while True:
            costs.append(lines_of(framelog, lambda: pieces.append(next(walk))))
    assert b"".join(pieces) == b"e" * 99_990
    assert sum(bool(piece) for piece in pieces) == 2
    assert max(costs) < 50_000


def test_the_answer_of_exec_is_written_in_large_pieces() -> None:
    op: Any = Op(op_id="a", chosen=False, fingerprint=b"", spec=None, now=0.0)
    op.log = frames_by_turns(20_000)
    assert not documents.is_small(op)  # which would be made in one go
    pieces = list(documents.exec_pieces(op))
    assert sum(bool(piece) for piece in pieces) < 10
    answer = json.loads(b"".join(pieces))
    assert (answer["stdout"], answer["stderr"]) == ("o" * 10_000, "e" * 10_000)
    assert json.loads(documents.exec_answer(op)) == {**answer, "usage": ANY}


def test_output_that_comes_while_a_log_is_walked_changes_nothing_in_it() -> None:
    log = frames_by_turns(20_000)
    walk = log.output(STDERR, length=log.kept_bytes(STDERR))
    assert next(walk) == b""
    log.append(STDERR, b"x" * 1000)
    log.append(STDOUT, b"y")
    assert b"".join(walk) == b"e" * 10_000
    assert log.simple_output(STDERR) == b"e" * 10_000 + b"x" * 1000


TURNS = st.lists(st.tuples(st.sampled_from("oes"), st.binary(max_size=40_000)), max_size=60)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=30)
@given(turns=TURNS, repeated=st.integers(1, 3), tail=st.integers(0, 2 << 20))
def test_the_tail_log_keeps_the_end_of_both_streams(
    turns: list[tuple[str, bytes]], repeated: int, tail: int
) -> None:
    log, written = TailLog(), {"stdout": b"", "stderr": b"", "all": b""}
    for kind, data in turns * repeated:
        log.append(ord(kind), data)
        if kind != "s":
            written["stdout" if kind == "o" else "stderr"] += data
            written["all"] += data
    kept = log.text("all", tail=1 << 20)
    assert kept == written["all"][-(1 << 20) :]
    assert log.truncated <= (len(written["all"]) > 1 << 20)
    for kind, stream in ((STDOUT, "stdout"), (STDERR, "stderr")):
        text = log.text(stream, tail=1 << 20)
        assert written[stream].endswith(text)
        assert b"".join(log.output(kind))[-(1 << 20) :] == text
        assert log.text(stream, tail=tail) == text[len(text) - min(tail, len(text)) :]
    assert (log.stdout_bytes, log.stderr_bytes) == (len(written["stdout"]), len(written["stderr"]))


def test_the_tail_log_needs_little_more_memory_than_it_keeps() -> None:
    """Byte by byte, now on one stream and now on the other."""
    log = TailLog()
    tracemalloc.start()
    try:
        for _ in range(700_000):
            log.append(STDOUT, b"o")
            log.append(STDERR, b"e")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert log.text("all", tail=4) == b"oeoe"
    assert log.truncated
    assert 1 << 20 <= sum(len(piece) for kind in (STDOUT, STDERR) for piece in log.output(kind)) < 2 << 20


@pytest.mark.parametrize(("packets", "kept"), [(200, 200), (250, 200)])
def test_what_stays_in_a_pipe_is_told(packets: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe of packets gives one of them a read; the end of an op reads so often and no more."""
    monkeypatch.setattr(output, "DRAIN_READS", 200)
    log = TailLog()
    pipes: Any = output.OpOutput(SimpleNamespace(), log, changed=lambda: None)  # pyright: ignore[reportArgumentType]
    pipes._out, write = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    try:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
        for _ in range(packets):
            os.write(write, b"packet")
        pipes.drain()
        assert len(log.text("stdout", tail=1 << 20)) == 6 * kept
        assert log.truncated == (kept < packets)
    finally:
        os.close(write)
        os.close(pipes._out)
