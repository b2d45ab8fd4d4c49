"""The response reader, without sockets: every response is the same however its bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_gateway.data.errors import WireError
from sandlot_gateway.data.wire import MAX_HEAD, ResponseReader

CL3 = (b"content-length", b"3")


def read(pieces, *, no_body=False, upgrade=False, eof=False):
    """(status, headers, body, complete, reusable, excess, upgraded), or the word for a broken response."""
    reader = ResponseReader()
    reader.expect(no_body=no_body, upgrade=upgrade)
    try:
        for piece in pieces:
            if piece:
                reader.feed(piece)
        if eof:
            reader.eof()
    except WireError:
        return "broken"
    return (
        reader.status,
        reader.headers,
        reader.take(),
        reader.complete,
        reader.reusable,
        reader.excess,
        reader.upgraded,
    )


CASES = {
    "by length": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        {},
        (200, [CL3], b"abc", True, True, False, False),
    ),
    "chunked, with a trailer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX: y\r\n\r\n",
        {},
        (200, [], b"abcde", True, True, False, False),
    ),
    "until the end": (
        b"HTTP/1.1 200 OK\r\n\r\nabc",
        {"eof": True},
        (200, [], b"abc", True, False, False, False),
    ),
    "no end yet": (b"HTTP/1.1 200 OK\r\n\r\nabc", {}, (200, [], b"abc", False, False, False, False)),
    "1xx before": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        {},
        (200, [CL3], b"abc", True, True, False, False),
    ),
    "304 with a length": (
        b"HTTP/1.1 304 NM\r\nContent-Length: 3\r\n\r\n",
        {},
        (304, [CL3], b"", True, True, False, False),
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", {}, (204, [], b"", True, True, False, False)),
    "HEAD": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
        {"no_body": True},
        (200, [CL3], b"", True, True, False, False),
    ),
    "HEAD, chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        {"no_body": True},
        (200, [], b"", True, True, False, False),
    ),
    "close": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        {},
        (200, [CL3], b"abc", True, False, False, False),
    ),
    "HTTP/1.0": (
        b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        {},
        (200, [CL3], b"abc", True, False, False, False),
    ),
    "a header of the connection": (
        b"HTTP/1.1 200 OK\r\nX-Hop: 1\r\nContent-Length: 3\r\nKeep-Alive: timeout=5\r\nConnection: X-Hop, keep-alive\r\n\r\nabc",
        {},
        (200, [CL3], b"abc", True, True, False, False),
    ),
    "header bytes stay": (
        b"HTTP/1.1 200 OK\r\nX-Name: a  b\xff\r\nContent-Length: 3\r\n\r\nabc",
        {},
        (200, [(b"x-name", b"a  b\xff"), CL3], b"abc", True, True, False, False),
    ),
    "more than the response": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        {},
        (200, [CL3], b"abc", True, True, True, False),
    ),
    "a body for HEAD": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        {"no_body": True},
        (200, [CL3], b"", True, True, True, False),
    ),
    "upgrade": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: sandlot-tcp\r\nConnection: Upgrade\r\n\r\nraw\x00\r\n\r\nbytes",
        {"upgrade": True},
        (101, [], b"raw\x00\r\n\r\nbytes", False, False, False, True),
    ),
}

BROKEN = {
    "cut body": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", True),
    "cut chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", True),
    "cut head": (b"HTTP/1.1 200 OK\r\nContent-Le", True),
    "nothing": (b"", True),
    "101 without upgrade": (b"HTTP/1.1 101 Switching\r\n\r\n", False),
    "status 700": (b"HTTP/1.1 700 Odd\r\n\r\n", False),
    "status 099": (b"HTTP/1.1 099 Odd\r\n\r\n", False),
    "100 with a body": (b"HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\n", False),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", False),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        False,
    ),
    "a line break in a header": (b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n", False),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", False),
}


@pytest.mark.parametrize("name", CASES)
def test_every_cut_of_a_response_reads_the_same(name):
    data, options, expected = CASES[name]
    assert read([data], **options) == expected
    for at in range(1, len(data)):
        assert read([data[:at], data[at:]], **options) == expected, f"cut at {at}"
    assert read([data[at : at + 1] for at in range(len(data))], **options) == expected


@pytest.mark.parametrize("name", BROKEN)
def test_every_cut_of_a_broken_response_is_an_error(name):
    data, eof = BROKEN[name]
    for at in range(len(data) + 1):
        assert read([data[:at], data[at:]], upgrade=True, eof=eof) == "broken", f"cut at {at}"


def test_every_cut_of_an_upgrade_that_nobody_asked_for_is_an_error():
    data, _, _ = CASES["upgrade"]
    for at in range(len(data) + 1):
        assert read([data[:at], data[at:]]) == "broken", f"cut at {at}"


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"yyy"),
    ],
)
def test_a_head_without_end_is_an_error_and_not_a_memory_leak(first, again):
    reader = ResponseReader()
    fed = 0

    def feed_for_ever() -> None:
        nonlocal fed
        for piece in (first, *[again] * MAX_HEAD):
            if piece:
                reader.feed(piece)
                fed += len(piece)

    with pytest.raises(WireError, match="head is larger"):
        feed_for_ever()
    assert fed <= MAX_HEAD


@pytest.mark.parametrize(
    ("first", "again"),
    [(b"0\r\nX: ", b"y" * 100), (b"5\r\nhello\r\n5;x=", b"y" * 100), (b"0\r\n", b"X: %s\r\n" % (b"y" * 95))],
    ids=["trailer", "extension", "trailers"],
)
def test_what_frames_a_body_has_an_end(first, again):
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + first)
    fed = 0

    def feed_for_ever() -> None:
        nonlocal fed
        while fed <= 2 * MAX_HEAD:
            reader.feed(again)
            fed += len(again)

    with pytest.raises(WireError, match="chunk extensions or trailers"):
        feed_for_ever()
    assert fed <= MAX_HEAD


def test_a_body_of_many_small_chunks_is_read():
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(MAX_HEAD // 4):
        for piece in (b"1;n=v\r\n", b"x", b"\r\n"):
            reader.feed(piece)
    reader.feed(b"0\r\nX: y\r\n\r\n")
    assert reader.complete
    assert len(reader.take()) == MAX_HEAD // 4


def test_a_reader_reads_one_response_after_the_other():
    reader = ResponseReader()
    for no_body in (False, True, False, False, True):
        reader.expect(no_body=no_body)
        reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + (b"" if no_body else b"abc"))
        assert (reader.complete, reader.take(), reader.excess) == (True, b"" if no_body else b"abc", False)


@given(
    body=st.binary(max_size=300),
    sizes=st.lists(st.integers(1, 60), max_size=20),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
)
def test_any_chunking_and_any_cutting_gives_the_body(body, sizes, cuts):
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    left = body
    for size in sizes:
        if left[:size]:
            wire += b"%x\r\n%b\r\n" % (len(left[:size]), left[:size])
            left = left[size:]
    if left:
        wire += b"%x\r\n%b\r\n" % (len(left), left)
    wire += b"0\r\n\r\n"
    places = sorted({min(cut, len(wire)) for cut in cuts})
    pieces = [wire[start:end] for start, end in zip([0, *places], [*places, len(wire)], strict=True)]
    assert read(pieces) == (200, [], body, True, True, False, False)


@given(pieces=st.lists(st.binary(max_size=80), max_size=10), start=st.booleans())
def test_any_bytes_are_a_response_or_an_error(pieces, start):
    outcome = read([b"HTTP/1.1 200 OK\r\n" if start else b"", *pieces], eof=True)
    if outcome != "broken":
        status, headers, *_ = outcome
        assert 101 <= status <= 599
        assert all(b"\n" not in value and b"\r" not in value for _, value in headers)
