"""Whom a connection asks for, by its first bytes, however they come."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.server.egress import asked_host
from sandlot_sidecar.server.egress.asked_host import (
    RECORDS,
    Head,
    Hello,
    Incomplete,
    NoHostName,
    clean,
)

from tests.sidecar.executed_lines import lines_of


def of_tls(data: bytes) -> str:
    """Of what is there at once, in however many records."""
    return Hello(records=len(data)).feed(data)


def of_http(data: bytes) -> str:
    return Head().feed(data)


def hello(name: str | None, *, most: int = 1 << 14) -> bytes:
    """What OpenSSL says first; in records of so many bytes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    record = outgoing.read()
    pieces = [record[at : at + most] for at in range(5, len(record), most)]
    return b"".join(record[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


@pytest.mark.parametrize("most", [1 << 14, 100, 3, 1])
def test_the_server_name_is_found_as_soon_as_all_of_the_hello_is_there(most: int):
    data = hello("a.Example.org", most=most)
    for end in range(len(data)):
        with pytest.raises(Incomplete):
            of_tls(data[:end])
    assert of_tls(data) == of_tls(data + b"more") == "a.example.org"


def test_tls_without_a_name_has_none():
    with pytest.raises(NoHostName, match="without a server name"):
        of_tls(hello(None))


@pytest.mark.parametrize("head", [b"\x17\3\1", b"GET ", b"\x16\2", b"\x16\3\1\0\0", b"\x16\3\1\0\1\2"])
def test_what_is_no_hello_is_told_early(head: bytes):
    with pytest.raises(NoHostName):
        of_tls(head)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_broken_hello_is_no_other_error(noise: bytes, at: int):
    whole = hello("example.org")
    for data in (noise, b"\x16\3\1" + noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            of_tls(data)
        except (Incomplete, NoHostName):
            continue


@pytest.mark.parametrize(
    ("first", "headers", "name"),
    [
        ("GET / HTTP/1.1", ["Host: Example.org."], "example.org"),
        ("GET / HTTP/1.1", ["Accept: */*", "hOST:example.org:8080", "X: y"], "example.org"),
        ("GET http://example.org:80/a?b HTTP/1.1", ["Host: example.org"], "example.org"),
        ("GET http://example.org?b HTTP/1.0", [], "example.org"),
        ("CONNECT example.org:443 HTTP/1.1", ["Host: example.org"], "example.org"),
        ("POST /a:b://c HTTP/1.1", ["Host: 10.0.0.1"], "10.0.0.1"),
        ("GET / HTTP/1.1", ["Host: a.org", "Host: a.org"], "a.org"),
        ("GET / HTTP/1.1", ["Host: a.org", "Host: b.org"], None),
        ("GET http://b.org/ HTTP/1.1", ["Host: a.org"], None),
        ("CONNECT b.org:443 HTTP/1.1", ["Host: a.org"], None),
        ("GET / HTTP/1.1", ["Host : a.org"], None),
        ("GET / HTTP/1.1", ["X: y", " Host: a.org"], None),
        ("GET / HTTP/1.1", ["X: y\nHost: a.org"], None),
        ("GET / HTTP/1.1", ["X: y\rHost: a.org"], None),
        ("GET / HTTP/1.1", ["Host: user@a.org"], None),
        ("GET / HTTP/1.1", ["Host: [::1]"], None),
        ("GET / HTTP/1.1", ["Host:"], None),
        ("GET / HTTP/1.1", [], None),
        ("PRI * HTTP/2.0", [], None),
        ("GET /", ["Host: a.org"], None),
    ],
)
def test_the_host_of_a_request(first: str, headers: list[str], name: str | None):
    head = "\r\n".join([first, *headers, "", ""]).encode()
    with pytest.raises(Incomplete):
        of_http(head[:-1])
    if name is None:
        with pytest.raises(NoHostName):
            of_http(head)
    else:
        assert of_http(head + b"body\n") == name


@given(st.binary(max_size=200))
def test_a_broken_request_is_no_other_error(noise: bytes):
    for data in (noise, b"GET / HTTP/1.1\r\n" + noise + b"\r\n\r\n", noise + b"\r\n\r\n"):
        try:
            of_http(data)
        except (Incomplete, NoHostName):
            continue


@pytest.mark.parametrize(
    "name", ["", ".", "a..b", "a b", "ü.org", "a" * 64, ".".join(["a" * 50] * 6), "a/b", "*"]
)
def test_what_is_no_name(name: str):
    with pytest.raises(NoHostName):
        clean(name)


def counted(work: Callable[[], object]) -> int:
    """The lines of the parsers that run, whatever comes of it."""

    def harmless() -> None:
        with contextlib.suppress(Incomplete, NoHostName):
            work()

    return lines_of(asked_host, harmless)


def test_a_byte_more_costs_the_same_however_much_has_come():
    whole = hello("example.org") + bytes(60_000)
    body = whole[9:]
    long = b"\x16\3\1\x40\0\1" + (30_000).to_bytes(3, "big") + body[:16_000]
    heads = b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000
    for asked, data in (
        (Hello(), long),
        (Hello(records=9999), hello("x.org", most=1)[:3000]),
        (Head(), heads),
    ):
        assert max(counted(partial(asked.feed, data[at : at + 1])) for at in range(len(data))) < 50


@pytest.mark.parametrize("most", [100, 3, 1])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_hello_may_come_in_a_few_records_only(most: int, piece: int):
    data = hello("example.org", most=most)
    asked, fed = Hello(), 0
    try:
        while True:
            fed += piece
            try:
                assert asked.feed(data[fed - piece : fed]) == "example.org"
            except Incomplete:
                continue
            break
    except NoHostName as error:
        assert most < 100
        assert "too many records" in str(error)
        assert fed <= RECORDS * (5 + most) + 5 + piece
    else:
        assert most == 100
        assert bytes(asked.said) == data[:fed]


def test_what_is_said_at_once_costs_little_too():
    """Of 256 connections that say it at the same time, the loop turns only after the last."""
    extensions = b"\xff\xff\0\0" * 7000
    body = bytes(34) + b"\0\0\0\0" + len(extensions).to_bytes(2, "big") + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    pieces = [message[at : at + 16_000] for at in range(0, len(message), 16_000)]
    tls = b"".join(b"\x16\3\1" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert counted(partial(Hello().feed, tls)) < 10_000
    assert counted(partial(Head().feed, b"GET / HTTP/1.1\r\n" + b"Host:a\r\n" * 4000 + b"\r\n")) < 10_000
