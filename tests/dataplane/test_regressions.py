"""The bugs that routers of this kind have had, one test each."""

from __future__ import annotations

import asyncio

import pytest
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.conn import READ_HIGH
from sandlot_gateway.data.dial import dial

from tests.dataplane.upstreams import Peer, Request, echo


@pytest.fixture
async def recorded(gateway, upstream):
    """A gateway over an echo, and the requests that arrived there."""
    requests: list[Request] = []
    server = await upstream(echo(requests))
    gw = await gateway()
    gw.route(server.address)
    return gw, requests


@pytest.mark.parametrize(
    "query", ["path=/a%2Fb&x=%20+%2B", "a=1&a=2&", "%", "q=%zz&=", "path=/caf%C3%A9", "a?b?c", "x=[1]{2}|^"]
)
async def test_the_query_string_arrives_byte_for_byte(recorded, client, query):
    gw, requests = recorded
    connection = await client(gw)
    connection.send("GET", f"/sbx/sb-1/files?{query}", body=None, token=gw.token)
    assert (await connection.answer())[0] == 200
    assert requests[0].target == f"/v1/files?{query}"


@pytest.mark.parametrize(
    "path", ["ops/a%3Ab", "ops/a%2fb/stdin", "ops/a%252Fb", "files/x%20y", "ops//x", "ops/a;b=c"]
)
async def test_escaped_paths_are_not_decoded(recorded, client, path):
    gw, requests = recorded
    connection = await client(gw)
    connection.send("GET", f"/sbx/sb-1/{path}", body=None, token=gw.token)
    assert (await connection.answer())[0] == 200
    assert requests[0].target == f"/v1/{path}"


async def test_nothing_a_client_sends_chooses_the_address(gateway, upstream, client):
    """An open proxy: the target may come from the directory only."""
    hits: list[Request] = []
    internal = await upstream(echo(hits), tcp=True)
    intended: list[Request] = []
    server = await upstream(echo(intended))
    gw = await gateway()
    gw.route(server.address)
    connection = await client(gw)
    headers = tuple(
        f"{name}: {internal.address}"
        for name in ("x-sandbox-pod-ip", "x-sandbox-id", "x-forwarded-host", "forwarded", "x-original-url")
    )
    for target in ("/sbx/sb-1/exec", f"http://{internal.address}/sbx/sb-1/exec"):
        connection.send("POST", target, body=b"{}", headers=headers, token=gw.token)
        assert (await connection.answer())[0] == 200
    for sandbox_id in (internal.address, f"sb-1@{internal.address}", f"%2e%2e@{internal.address}"):
        connection.send("POST", f"/sbx/{sandbox_id}/exec", body=b"{}", token="key-of-acme")
        assert (await connection.answer())[0] == 502
    assert len(intended) == 2
    assert hits == []


async def test_a_command_may_take_as_long_as_it_takes(gateway, upstream, client):
    """Silence is no error: neither the pool nor the server in front has a total or idle timeout on a request."""

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await asyncio.sleep(2.5)  # longer than the server keeps a connection without a request
        peer.send(b"4\r\nlate\r\n0\r\n\r\n")
        await peer.ended()

    server = await upstream(behave)
    gw = await gateway(limits=Limits(pending_wait=0.1), keep_alive=1)
    gw.route(server.address)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/ops", body=b"{}", token=gw.token)
    assert (await connection.answer())[2] == b"late"


async def test_the_number_of_kept_connections_is_not_the_number_of_sandboxes(gateway, upstream, client):
    """A keep-alive cap below the number of upstreams made every request dial again."""
    servers = [await upstream(echo()) for _ in range(150)]
    gw = await gateway()
    for n, server in enumerate(servers):
        gw.route(server.address, sandbox_id=f"sb-{n}")
    connection = await client(gw)
    for _ in range(3):
        for n in range(len(servers)):
            connection.send("POST", f"/sbx/sb-{n}/exec", body=b"{}", token="key-of-acme")
            assert (await connection.answer())[0] == 200
    assert [server.connections for server in servers] == [1] * len(servers)


async def test_an_ipv6_address_is_reached_and_bracketed(gateway, upstream, client):
    server = await upstream(echo(), tcp=True, host="::1")
    assert server.address.startswith("[::1]:")
    gw = await gateway()
    gw.route(server.address)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"six", token=gw.token)
    assert (await connection.answer())[2] == b"six"


async def test_the_connection_header_names_what_stays_here(recorded, client):
    gw, requests = recorded
    connection = await client(gw)
    hop = (
        "connection: keep-alive, X-Hop",
        "x-hop: secret",
        "te: trailers",
        "proxy-authorization: x",
        "keep-alive: 5",
    )
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", headers=hop, token=gw.token)
    assert (await connection.answer())[0] == 200
    names = {name for name, _ in requests[0].headers}
    assert not names & {"connection", "x-hop", "te", "proxy-authorization", "keep-alive"}


async def test_a_request_cannot_be_smuggled_behind_another(recorded, client):
    gw, requests = recorded
    for headers in (
        ("content-length: 5", "transfer-encoding: chunked"),
        ("content-length: 5", "content-length: 6"),
        ("transfer-encoding: chunked, identity",),
    ):
        connection = await client(gw)
        connection.send("POST", "/sbx/sb-1/exec", body=None, headers=headers, token=gw.token)
        connection.writer.write(b"0\r\n\r\nGET /v1/state HTTP/1.1\r\n\r\n")
        assert (await connection.head())[0] == 400
    assert all(request.target == "/v1/exec" for request in requests)


async def test_a_large_answer_that_came_in_one_piece_does_not_stop_the_next_one(upstream):
    """Seen as commands that hung after one with 300 KB of output, which had paused the connection for good."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        await peer.request()
        peer.answer(b"second")
        await peer.ended()

    server = await upstream(behave)
    connection = await dial(server.address, timeout=5)
    try:
        connection.begin(b"GET /1 HTTP/1.1\r\n\r\n")
        large = b"x" * (READ_HIGH + 1)
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(large) + large)
        response = await connection.head()
        assert response.complete
        assert connection.take() == large
        connection.begin(b"GET /2 HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(10):
            await connection.head()
            assert await connection.read() == b"second"
    finally:
        connection.close()
