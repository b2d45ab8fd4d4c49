"""Whom a connection asks for, by its first bytes, however they come."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.server.egress.asked_host import Incomplete, Nameless, clean, of_http, of_tls


def hello(name: str | None, *, most: int = 1 << 14) -> bytes:
    """What OpenSSL says first; in records of so many bytes."""
    context = ssl.create_default_context()
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
    with pytest.raises(Nameless, match="without a server name"):
        of_tls(hello(None))


@pytest.mark.parametrize("head", [b"\x17\3\1", b"GET ", b"\x16\2", b"\x16\3\1\0\0", b"\x16\3\1\0\1\2"])
def test_what_is_no_hello_is_told_early(head: bytes):
    with pytest.raises(Nameless):
        of_tls(head)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_broken_hello_is_no_other_error(noise: bytes, at: int):
    whole = hello("example.org")
    for data in (noise, b"\x16\3\1" + noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            of_tls(data)
        except (Incomplete, Nameless):
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
        with pytest.raises(Nameless):
            of_http(head)
    else:
        assert of_http(head + b"body\n") == name


@given(st.binary(max_size=200))
def test_a_broken_request_is_no_other_error(noise: bytes):
    for data in (noise, b"GET / HTTP/1.1\r\n" + noise + b"\r\n\r\n", noise + b"\r\n\r\n"):
        try:
            of_http(data)
        except (Incomplete, Nameless):
            continue


@pytest.mark.parametrize(
    "name", ["", ".", "a..b", "a b", "ü.org", "a" * 64, ".".join(["a" * 50] * 6), "a/b", "*"]
)
def test_what_is_no_name(name: str):
    with pytest.raises(Nameless):
        clean(name)
