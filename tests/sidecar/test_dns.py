"""What a sidecar asks of name servers, and what it takes for an answer: messages, and a server of the test's own."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_sidecar.server.egress import dns, resolver
from sandlot_sidecar.server.nameservers import NameServers, read

from tests.ports import free_port

ASKED = dns.question("a.example", number=7)


def record(owner: bytes, kind: int, data: bytes) -> bytes:
    return owner + kind.to_bytes(2, "big") + b"\0\1" + bytes(4) + len(data).to_bytes(2, "big") + data


def said(*records: bytes, asked: bytes = ASKED, flags: int = 0x8180) -> bytes:
    head = asked[:2] + flags.to_bytes(2, "big") + b"\0\1" + len(records).to_bytes(2, "big") + bytes(4)
    return head + asked[12:] + b"".join(records)


HERE, ALIAS = b"\xc0\x0c", b"\1b\7example\0"
ONE, TWO = b"\xc6\x33\x64\1", b"\xc6\x33\x64\2"


def test_addresses_of_a_name_and_of_what_it_is_an_alias_for() -> None:
    assert dns.answer(said(record(HERE, 1, ONE), record(HERE, 1, TWO)), asked=ASKED) == [
        "198.51.100.1",
        "198.51.100.2",
    ]
    aliased = said(record(HERE, 5, ALIAS), record(b"\1B\7EXAMPLE\0", 1, TWO))
    assert dns.answer(aliased, asked=ASKED) == ["198.51.100.2"]
    assert dns.answer(said(record(ALIAS, 1, ONE)), asked=ASKED) == [], "another name's"
    assert dns.answer(said(record(HERE, 5, HERE)), asked=ASKED) == [], "an alias for itself"


@pytest.mark.parametrize(
    ("data", "raised"),
    [
        (said(flags=0x8183), dns.NoSuchName),
        (said(flags=0x8380), dns.Truncated),
        (said(flags=0x8182), dns.Unusable),
        (said(flags=0x0100), dns.Unusable),
        (said(asked=dns.question("a.example", number=8)), dns.Unusable),
        (said(asked=dns.question("b.example", number=7)), dns.Unusable),
        (said(record(HERE, 1, ONE))[:-1], dns.Unusable),
        (said(b"\xc0\xff"), dns.Unusable),
        (b"", dns.Unusable),
    ],
)
def test_what_is_no_answer(data: bytes, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        dns.answer(data, asked=ASKED)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    try:
        found = dns.answer(said(data), asked=ASKED)
    except dns.Unusable:
        return
    assert isinstance(found, list)


def test_a_name_that_cannot_be_asked_for() -> None:
    for name in ("a" * 64, ".".join(["abcdefg"] * 40), "a..b"):
        with pytest.raises(ValueError, match="too long"):
            dns.question(name, number=1)


def test_the_file_is_read_once(tmp_path, monkeypatch) -> None:
    text = "search Here.test. b.test\nnameserver 192.0.2.1\nnameserver nonsense\nnameserver 2001:db8::1\noptions timeout:1 attempts:9\n"
    source, keep = tmp_path / "source", tmp_path / "state/resolv.conf"
    source.write_text(text)
    monkeypatch.setattr("sandlot_sidecar.server.nameservers._SOURCE", str(source))
    for _ in range(2):
        names = read(keep=str(keep))
        assert names.servers == ["192.0.2.1", "2001:db8::1"]
        assert (names.search, names.timeout, names.attempts) == (["here.test", "b.test"], 1.0, 5)
        assert names.numbers() == [(192 << 24) + (2 << 8) + 1]
        source.write_text("nameserver 192.0.2.66\n")


class Server(asyncio.DatagramProtocol):
    """Knows `known` by its whole name, and says the rest is truncated, of which a connection says more."""

    def __init__(self, known: bytes) -> None:
        self.known = known

    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr) -> None:
        name = data[12 : data.index(b"\0", 12)]
        flags = 0x8180 if name == self.known else 0x8380 if b"long" in name else 0x8183
        self.transport.sendto(b"\0\0" + data[2:], addr)  # not what was asked
        self.transport.sendto(
            said(*([record(HERE, 1, ONE)] if flags == 0x8180 else []), asked=data, flags=flags), addr
        )


async def _by_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
    answer = said(record(HERE, 1, TWO), asked=asked)
    writer.write(len(answer).to_bytes(2, "big") + answer)
    await writer.drain()
    writer.close()


async def test_a_server_is_asked_and_no_file(monkeypatch) -> None:
    loop = asyncio.get_running_loop()
    port = free_port()  # for a connection and for datagrams: one that the kernel chose for the first may be taken for the other
    listener = await asyncio.start_server(_by_connection, "127.0.0.1", port)
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Server(b"\1a\4here\4test"), local_addr=("127.0.0.1", port)
    )
    monkeypatch.setattr(resolver, "_PORT", port)
    try:
        asks = resolver.Resolver(
            NameServers("nameserver 127.0.0.1\nsearch other.test here.test\noptions timeout:5\n")
        )
        assert await asks.addresses("a.here.test") == ["198.51.100.1"]
        assert await asks.addresses("a") == ["198.51.100.1"], "by the search list"
        assert await asks.addresses("long.test") == ["198.51.100.2"], "by a connection"
        assert await asks.addresses("192.0.2.5") == ["192.0.2.5"]
        assert await asks.addresses("localhost") == ["127.0.0.1"]
        with pytest.raises(OSError, match="knows this name"):
            await asks.addresses(socket.gethostname().lower())
    finally:
        transport.close()
        listener.close()
    with pytest.raises(OSError, match="no name server answers"):
        await asks.addresses("a.here.test")
