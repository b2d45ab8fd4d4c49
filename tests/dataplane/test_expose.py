"""Ports of a sandbox from outside: by path for HTTP and WebSocket, on a port of their own for TCP."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack

import pytest
import websockets
from sandlot_gateway.data.breaker import Limits
from sandlot_gateway.data.expose import ExposeError, Exposures

from tests.dataplane.gateway import Client
from tests.dataplane.sidecar import tcp_to
from tests.dataplane.upstreams import Peer, Request, echo
from tests.ports import free_ports
from tests.waiting import until


@pytest.fixture
async def exposed(gateway, upstream):
    """`await exposed(app)`: a gateway whose sb-1 has `app` on its port 8000, and the exposure of it."""

    async def start(app, *, protocol: str = "HTTP", **options):
        server = await upstream(app, tcp=True)
        side = await upstream(tcp_to({8000: int(server.address.rpartition(":")[2])}))
        gw = await gateway(**options)
        gw.route(side.address)
        exposure = await gw.exposures.add("sb-1", "acme", 8000, "web", protocol)
        return gw, exposure, side, server

    return start


async def test_an_app_is_reached_by_path_without_a_credential(exposed, client):
    requests: list[Request] = []
    gw, exposure, side, server = await exposed(echo(requests))
    connection = await client(gw)
    for n in range(3):
        connection.send(
            "POST",
            f"{exposure.path}a%2Fb/../c?x=1&y=%20{n}",
            body=b"hi",
            headers=("x-forwarded-for: 6.6.6.6", "x-own: 1"),
        )
        status, _, body = await connection.answer()
        assert (status, body) == (200, b"hi")
    assert requests[0].target == "/a%2Fb/../c?x=1&y=%200"
    assert requests[0].header("host") == "localhost:8000"
    assert requests[0].header("x-forwarded-for") == "127.0.0.1"
    assert requests[0].header("x-forwarded-host") == "gateway.test"
    assert requests[0].header("x-forwarded-proto") == "http"
    assert requests[0].header("x-forwarded-prefix") == exposure.path.rstrip("/")
    assert requests[0].header("x-own") == "1"
    assert (side.connections, server.connections) == (1, 1)  # the tunnel is kept alive
    assert "sb-1" in gw.directory.touches
    assert len(exposure.id) >= 22  # 128 bits in base64


async def test_the_gateways_credentials_do_not_reach_the_app_but_the_apps_own_do(exposed, client):
    requests: list[Request] = []
    gw, exposure, _, _ = await exposed(echo(requests))
    connection = await client(gw)
    for token in (gw.token, "key-of-acme", "sct_expired", "the-apps-own"):
        connection.send("GET", exposure.path, body=None, token=token)
        await connection.answer()
    assert [request.header("authorization") for request in requests] == [
        None,
        None,
        None,
        "Bearer the-apps-own",
    ]
    assert all("sst_" not in request.raw.decode() for request in requests)


async def test_redirects_stay_below_the_exposure(exposed, client):
    async def app(peer: Peer) -> None:
        while True:
            request = await peer.request()
            to = request.header("x-to") or ""
            peer.answer(status="302 Found", head=b"location: %b\r\n" % to.encode())

    gw, exposure, _, _ = await exposed(app)
    connection = await client(gw)
    for to, seen in (
        ("/login", f"{exposure.path}login"),
        ("next", "next"),
        ("//other.test/", "//other.test/"),
        ("https://other.test/", "https://other.test/"),
        (f"{exposure.path}own", f"{exposure.path}own"),
    ):
        connection.send("GET", exposure.path, body=None, headers=(f"x-to: {to}",))
        assert (await connection.answer())[1]["location"] == seen
    connection.send("GET", exposure.path.rstrip("/") + "?q=1", body=None)
    status, headers, _ = await connection.answer()
    assert (status, headers["location"]) == (308, f"{exposure.path}?q=1")


async def test_a_stream_of_an_app_passes_as_it_comes(exposed, client):
    more = asyncio.Event()

    async def app(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await more.wait()
        peer.send(b"6\r\nsecond\r\n0\r\n\r\n")
        await peer.ended()

    gw, exposure, _, _ = await exposed(app)
    connection = await client(gw)
    connection.send("GET", exposure.path, body=None)
    _, headers = await connection.head()
    pieces = connection.pieces(headers)
    assert await anext(pieces) == b"first"
    more.set()
    assert await anext(pieces) == b"second"


async def test_unknown_refused_and_ended(exposed, client):
    gw, exposure, _, _ = await exposed(echo())
    nobody = await gw.exposures.add("sb-1", "acme", 9999, None, "HTTP")
    connection = await client(gw)

    async def ask(path: str) -> tuple[int, dict]:
        connection.send("GET", path, body=None)
        status, _, body = await connection.answer()
        return status, json.loads(body)

    for path in ("/expose/AAAA/", "/expose//", "/expose/"):
        assert (await ask(path))[1]["error"] == "no_such_exposure"
    status, document = await ask(nobody.path)
    assert (status, document["error"], document["may_have_run"]) == (502, "refused", False)
    gw.route("unix:/gone", status="TERMINATED", verdict="deleted")
    status, document = await ask(exposure.path)
    assert (status, document["error"], document["verdict"]) == (502, "sandbox_not_found", "deleted")
    gw.exposures.sandbox_ended("sb-1")
    assert (await ask(exposure.path))[0] == 404
    assert gw.exposures.list("acme") == []


async def test_exposures_belong_to_their_tenant(exposed):
    gw, exposure, _, _ = await exposed(echo())
    assert gw.exposures.list("other") == []
    assert await gw.exposures.remove(exposure.id, "other") is False
    assert gw.exposures.list("acme", sandbox_id="sb-1") == [exposure]
    assert gw.exposures.list("acme", sandbox_id="sb-2") == []
    assert await gw.exposures.remove(exposure.id, "acme") is True
    assert gw.exposures.list("acme") == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": 80, "protocol": "UDP"}, "protocol"),
        ({"port": 80, "name": "x" * 51}, "name"),
    ],
)
async def test_bad_exposures_name_the_field(exposed, fields, field):
    gw, _, _, _ = await exposed(echo())
    with pytest.raises(ExposeError) as error:
        await gw.exposures.add("sb-1", "acme", **fields)
    assert error.value.field == field


async def test_a_sandbox_has_a_bounded_number_of_exposures(exposed):
    gw, _, _, _ = await exposed(echo())
    for _ in range(63):
        await gw.exposures.add("sb-1", "acme", 8000)
    with pytest.raises(ExposeError, match="at most 64"):
        await gw.exposures.add("sb-1", "acme", 8000)


async def connect(exposure) -> Client:
    return Client(*await asyncio.open_connection(exposure.listen_host, exposure.listen_port))


async def test_tcp_passes_both_ways_and_keeps_half_close(exposed):
    async def app(peer: Peer) -> None:
        data = await peer.reader.read()  # until the client's end of file
        peer.send(data[::-1])
        await peer.writer.drain()
        peer.writer.write_eof()
        await peer.ended()

    gw, exposure, _, _ = await exposed(app, protocol="TCP")
    connection = await connect(exposure)
    connection.writer.write(b"abc\x00\xff")
    connection.writer.write_eof()
    assert await connection.reader.read() == b"\xff\x00cba"
    await connection.close()
    assert gw.exposures.list("acme") == [exposure]


async def test_tcp_waits_for_a_slow_reader(exposed):
    size = 64 << 20
    sent = 0
    stalled = asyncio.Event()

    async def app(peer: Peer) -> None:
        nonlocal sent
        while sent < size:
            peer.writer.write(b"x" * 65536)
            sent += 65536
            try:
                async with asyncio.timeout(0.5):
                    await peer.writer.drain()
            except TimeoutError:
                stalled.set()
                await peer.writer.drain()
        peer.writer.write_eof()
        await peer.ended()

    _, exposure, _, _ = await exposed(app, protocol="TCP")
    connection = await connect(exposure)
    await stalled.wait()
    assert sent < size
    received = 0
    while data := await connection.reader.read(1 << 20):
        received += len(data)
    assert received == size
    await connection.close()


@pytest.mark.parametrize("how", ["removed", "sandbox ended"])
async def test_tcp_ends_with_its_exposure(exposed, how):
    gw, exposure, _, _ = await exposed(echo(), protocol="TCP")
    connection = await connect(exposure)
    connection.send("POST", "/", body=b"x")
    assert (await connection.answer())[2] == b"x"
    if how == "removed":
        await gw.exposures.remove(exposure.id, "acme")
    else:
        gw.exposures.sandbox_ended("sb-1")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await connection.head()
    await connection.close()

    async def is_refused() -> bool:
        try:
            _, writer = await asyncio.open_connection(exposure.listen_host, exposure.listen_port)
        except ConnectionRefusedError:
            return True
        writer.transport.abort()
        return False

    async with asyncio.timeout(30):
        while not await is_refused():
            pass


async def test_tcp_to_a_port_nobody_listens_on_is_closed(exposed):
    gw, _, _, _ = await exposed(echo())
    exposure = await gw.exposures.add("sb-1", "acme", 9999, None, "TCP")
    connection = await connect(exposure)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await connection.reader.readexactly(1)
    await connection.close()


async def test_exposures_survive_the_gateway(exposed, upstream, stack, tmp_path):
    store = tmp_path / "exposures.json"
    gw, _, side, _ = await exposed(echo(), store=store)
    tcp = await gw.exposures.add("sb-1", "acme", 8000, "db", "TCP")
    before = gw.exposures.list("acme")
    await gw.exposures.close()
    assert store.stat().st_mode & 0o777 == 0o600
    again = Exposures(routes=gw.directory, pool=gw.pool, store=store)
    stack.push_async_callback(again.close)
    await again.start()
    assert again.list("acme") == before
    connection = await connect(tcp)
    connection.send("POST", "/", body=b"still there")
    assert (await connection.answer())[2] == b"still there"
    await connection.close()
    gw.route(side.address, status="TERMINATED", verdict="deleted")
    again.prune()
    assert again.list("acme") == []


@pytest.mark.parametrize("content", ["{", "[{}]", '[{"id": 1}]', '"x"'])
async def test_a_broken_store_is_said_and_not_fatal(gateway, stack, tmp_path, content, caplog):
    store = tmp_path / "exposures.json"
    store.write_text(content)
    gw = await gateway()
    again = Exposures(routes=gw.directory, pool=gw.pool, store=store)
    stack.push_async_callback(again.close)
    with caplog.at_level(logging.WARNING):
        await again.start()
    assert again.list("acme") == []
    assert "cannot be read" in caplog.text


async def test_the_configured_ports_are_used_in_order_and_run_out(gateway, stack):
    ports = free_ports(2)
    gw = await gateway()
    exposures = Exposures(routes=gw.directory, pool=gw.pool, ports=ports)
    stack.push_async_callback(exposures.close)
    made = [await exposures.add("sb-1", "acme", 80, None, "TCP") for _ in ports]
    assert [exposure.listen_port for exposure in made] == ports
    with pytest.raises(ExposeError, match="no free port"):
        await exposures.add("sb-1", "acme", 80, None, "TCP")
    await exposures.remove(made[0].id, "acme")
    assert (await exposures.add("sb-1", "acme", 80, None, "TCP")).listen_port == ports[0]


@pytest.fixture
async def websocket_app(stack):
    """An app in the sandbox that echoes messages; its port."""

    async def app(connection: websockets.ServerConnection) -> None:
        async for message in connection:
            if message == "close":
                await connection.close(4321, "as you like")
                return
            if message == "headers":
                await connection.send(json.dumps(dict(connection.request.headers.raw_items())))
            else:
                await connection.send(message)

    server = await websockets.serve(app, "127.0.0.1", 0, subprotocols=["chat"], max_size=None)
    stack.push_async_callback(server.wait_closed)
    stack.callback(server.close)
    return server.sockets[0].getsockname()[1]


async def test_a_websocket_passes_through_an_exposure(gateway, upstream, websocket_app):
    side = await upstream(tcp_to({8000: websocket_app}))
    gw = await gateway()
    gw.route(side.address)
    exposure = await gw.exposures.add("sb-1", "acme", 8000)
    url = f"ws://127.0.0.1:{gw.port}{exposure.path}socket?x=1"
    async with websockets.connect(
        url, subprotocols=["chat"], additional_headers={"Authorization": f"Bearer {gw.token}"}, proxy=None
    ) as connection:
        assert connection.subprotocol == "chat"
        for message in ("text \u00e9", b"\x00\xff", "", b"x" * 1_000_000, "y" * 200_000):
            await connection.send(message)
            assert await connection.recv() == message
        await connection.send(["a", "b", "c"])  # in fragments
        assert await connection.recv() == "abc"
        await connection.send("headers")
        headers = {name.lower(): value for name, value in json.loads(await connection.recv()).items()}
        assert headers["x-forwarded-prefix"] == exposure.path.rstrip("/")
        assert "authorization" not in headers
        await connection.send("close")
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await connection.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as you like")
    await until(lambda: gw.metrics.routes["expose"].in_flight == 0)


async def test_a_websocket_that_the_app_does_not_want_is_refused_with_its_status(exposed):
    async def app(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.answer(b"no", status="404 Not Found")

    gw, exposure, _, _ = await exposed(app)
    for path, status in ((exposure.path, 404), ("/expose/unknown/", 404)):
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(f"ws://127.0.0.1:{gw.port}{path}", proxy=None):
                pass
        assert refused.value.response.status_code == status


async def test_an_app_that_dies_closes_the_websocket(exposed):
    async def app(peer: Peer) -> None:
        request = await peer.request()
        key = request.header("sec-websocket-key") or ""
        accept = websockets.utils.accept_key(key)
        peer.send(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-accept: %b\r\n\r\n" % accept.encode()
        )
        await peer.writer.drain()

    gw, exposure, _, _ = await exposed(app)
    async with websockets.connect(f"ws://127.0.0.1:{gw.port}{exposure.path}", proxy=None) as connection:
        with pytest.raises(websockets.ConnectionClosed):
            await connection.recv()


async def answers_101(peer: Peer) -> None:
    await peer.request()
    peer.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: Upgrade\r\n\r\nHELLO")
    await peer.writer.drain()


async def answers_two_lengths(peer: Peer) -> None:
    await peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab")
    await peer.writer.drain()


@pytest.mark.parametrize("app", [answers_101, answers_two_lengths])
async def test_an_answer_that_is_none_is_told_of_without_where_the_sandbox_is(exposed, client, app):
    """A 101 that nobody asked for held the loop for ever. Whoever has the link may be anybody."""
    gw, exposure, side, _ = await exposed(app)
    for _ in range(2):
        connection = await client(gw)
        connection.send("GET", exposure.path)
        status, _, body = await connection.answer()
        told = json.loads(body)
        assert (status, told["error"], told["may_have_run"]) == (502, "app_failed", True)
        assert told["message"].startswith("the app on port 8000 ")
        assert side.address not in body.decode()
        assert "sb-1" not in body.decode()


def shaken_hands(after: bytes):
    """An app that answers the handshake and sends this."""

    async def app(peer: Peer) -> None:
        request = await peer.request()
        accept = websockets.utils.accept_key(request.header("sec-websocket-key") or "")
        peer.send(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-accept: %b\r\n\r\n%b" % (accept.encode(), after)
        )
        await peer.writer.drain()
        await peer.ended()

    return app


async def test_empty_frames_of_a_websocket_are_nothing(exposed):
    gw, exposure, _, _ = await exposed(shaken_hands(b"\x01\x00" + b"\x00\x00" * 200_000 + b"\x80\x01x"))
    url = f"ws://127.0.0.1:{gw.port}{exposure.path}"
    async with websockets.connect(url, proxy=None, ping_interval=None) as connection:
        assert await connection.recv() == "x"


async def test_a_message_in_too_many_frames_ends_its_websocket(exposed):
    gw, exposure, _, _ = await exposed(shaken_hands(b"\x01\x01a" + b"\x00\x01a" * 5000))
    url = f"ws://127.0.0.1:{gw.port}{exposure.path}"
    async with websockets.connect(url, proxy=None) as connection:
        with pytest.raises(websockets.ConnectionClosed, match="more than 4096 frames"):
            await connection.recv()


async def test_one_sandbox_has_not_all_websockets(exposed):
    gw, exposure, _, _ = await exposed(shaken_hands(b""), limits=Limits(sockets_per_sandbox=2))
    url = f"ws://127.0.0.1:{gw.port}{exposure.path}"
    async with websockets.connect(url, proxy=None) as first, websockets.connect(url, proxy=None):
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(url, proxy=None):
                pass
        assert refused.value.response.status_code == 503
        await first.close()
        await until(lambda: gw.metrics.routes["expose"].in_flight == 1)
        async with websockets.connect(url, proxy=None):
            pass


async def test_one_tenant_has_not_all_websockets(exposed):
    gw, exposure, side, _ = await exposed(shaken_hands(b""), limits=Limits(sockets=10))
    gw.route(side.address, sandbox_id="sb-2", tenant="other")
    others = await gw.exposures.add("sb-2", "other", 8000, "web", "HTTP")
    url = f"ws://127.0.0.1:{gw.port}"
    async with AsyncExitStack() as stack:
        for _ in range(9):
            await stack.enter_async_context(websockets.connect(f"{url}{exposure.path}", proxy=None))
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(f"{url}{exposure.path}", proxy=None):
                pass
        assert refused.value.response.status_code == 503
        assert b"this tenant has too many" in refused.value.response.body
        async with websockets.connect(f"{url}{others.path}", proxy=None):
            pass


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_websocket_that_begins_with_no_get_is_refused(exposed, client, method):
    """Nothing else would answer it, nor close its connection."""
    gw, exposure, _, _ = await exposed(shaken_hands(b""))
    connection = await client(gw)
    headers = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: x",
    )
    connection.send(method, exposure.path, headers=headers)
    status, _, body = await connection.answer()
    assert (status, body) == (400, b"a WebSocket begins with a GET")
