"""The log of an op's output: order, limit and offsets, and what it costs to read."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandlot_contract.frames import STDERR, STDOUT
from sandlot_sidecar.core.op import Op
from sandlot_sidecar.server import documents, framelog
from sandlot_sidecar.server.framelog import FrameLog

from tests.sidecar.executed_lines import lines_of
from tests.sidecar.support import parse_frames, payload


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
