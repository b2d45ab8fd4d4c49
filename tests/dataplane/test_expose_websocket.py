"""WebSockets through an exposure: messages, closes, hostile frames, and bounds on their number."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import pytest
import websockets
from sandlot_gateway.data.breaker import Limits

from tests.dataplane.sidecar import tcp_to
from tests.dataplane.upstreams import Peer
from tests.waiting import until


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
    document = json.loads(body)
    assert (status, document["message"]) == (400, "a WebSocket handshake must be a GET")
