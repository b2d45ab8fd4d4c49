"""The response parser: any split of the bytes gives the same answer, and nonsense is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot._protocol.http1 import Origin, ProtocolError, ResponseParser, chunk, request_head, split_url

bodies = st.lists(st.binary(min_size=1, max_size=200), max_size=6)


def feed_split(data: bytes, cuts: list[int]) -> ResponseParser:
    parser = ResponseParser()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        parser.feed(data[begin:end])
    return parser


@given(body=bodies, cuts=st.lists(st.integers(0, 5000), max_size=12), chunked=st.booleans())
def test_every_split_gives_the_same_body(body: list[bytes], cuts: list[int], chunked: bool) -> None:
    whole = b"".join(body)
    if chunked:
        data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        data += b"".join(map(chunk, body)) + chunk(b"")
    else:
        data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole
    parser = feed_split(data, cuts)
    assert parser.done
    assert parser.status == 200
    assert parser.reusable
    assert parser.take() == whole


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 500), max_size=5))
def test_garbage_is_refused_and_never_crashes(data: bytes, cuts: list[int]) -> None:
    try:
        parser = feed_split(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data, cuts)
        parser.eof()
    except ProtocolError:
        pass


def test_a_body_without_length_ends_with_the_connection() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert not parser.done
    parser.eof()
    assert parser.done
    assert not parser.reusable
    assert parser.take() == b"hello"


def test_an_interim_answer_is_passed_over() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
    assert (parser.status, parser.done) == (204, True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
    ],
)
def test_a_malformed_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ResponseParser().feed(data)


def test_an_answer_cut_short_is_an_error() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    with pytest.raises(ProtocolError, match="mid-answer"):
        parser.eof()


def test_bytes_after_the_answer_spoil_the_connection() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1")
    assert parser.done
    assert not parser.reusable


@pytest.mark.parametrize("where", ["target", "header"])
def test_a_line_break_cannot_smuggle_a_header(where: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        request_head(
            method="GET",
            target="/x\r\nEvil: 1" if where == "target" else "/",
            authority="h",
            headers={"X": "a\r\nEvil: 1" if where == "header" else "a"},
            length=0,
        )


def test_urls() -> None:
    assert split_url("http://h:81/base/") == (Origin(secure=False, host="h", port=81), "/base")
    assert split_url("https://[::1]")[0].authority == "[::1]"
    for wrong in ("h:80", "ftp://h", "http://", "http://user:pw@h", "http://h/?q=1"):
        with pytest.raises(ValueError, match="URL"):
            split_url(wrong)
