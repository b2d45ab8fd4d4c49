"""Bodies pass through in both directions as they come: nothing is collected, a slow side slows the other."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest
from sandlot_gateway.data.breaker import Limits

from tests.dataplane.upstreams import Peer, echo
from tests.waiting import loop_turns, until

MB = 1 << 20


def rss() -> int:
    """Bytes of memory this process (gateway, upstream and client together) holds now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@pytest.fixture
async def ready(gateway, upstream):
    """`await ready(behaviour)`: a gateway whose sb-1 behaves so."""

    async def start(behave, *, tcp: bool = False, **options):
        server = await upstream(behave, tcp=tcp)
        gw = await gateway(**options)
        gw.route(server.address)
        return gw, server

    return start


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
async def test_a_response_arrives_as_it_is_made(ready, client, tcp):
    step = asyncio.Queue[bytes]()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while piece := await step.get():
            peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        peer.send(b"0\r\n\r\n")
        await peer.ended()

    gw, _ = await ready(behave, tcp=tcp)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/ops", body=b"{}", token=gw.token)
    status, headers = await connection.head()
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    pieces = connection.pieces(headers)
    for piece in (b"one", b"two", b"three"):
        step.put_nowait(piece)
        assert await anext(pieces) == piece
    step.put_nowait(b"")
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)


async def test_a_request_arrives_as_it_is_sent(ready, client):
    arrived = asyncio.Queue[bytes]()

    async def behave(peer: Peer) -> None:
        while True:
            async for piece in peer.pieces(await peer.request()):
                arrived.put_nowait(piece)
            peer.answer(b"done")

    gw, _ = await ready(behave)
    connection = await client(gw)
    connection.send(
        "PUT", "/sbx/sb-1/files?path=/a", body=None, headers=("transfer-encoding: chunked",), token=gw.token
    )
    for piece in (b"one", b"two"):
        connection.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        assert await arrived.get() == piece
    connection.writer.write(b"0\r\n\r\n")
    assert (await connection.answer())[2] == b"done"
    connection.send(
        "PUT", "/sbx/sb-1/files?path=/a", body=None, headers=("content-length: 6",), token=gw.token
    )
    connection.writer.write(b"ab")
    assert await arrived.get() == b"ab"
    connection.writer.write(b"cdef")
    assert await arrived.get() == b"cdef"
    assert (await connection.answer())[2] == b"done"


async def test_a_large_download_waits_for_a_slow_reader_in_bounded_memory(ready, client):
    size = 200 * MB
    sent = 0
    stalled = asyncio.Event()
    block = b"x" * 65536

    async def behave(peer: Peer) -> None:
        nonlocal sent
        await peer.body(await peer.request())
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent < size:
            peer.writer.write(block)
            sent += len(block)
            try:
                async with asyncio.timeout(0.5):
                    await peer.writer.drain()
            except TimeoutError:
                stalled.set()
                await peer.writer.drain()
        await peer.ended()

    gw, _ = await ready(behave)
    connection = await client(gw)
    connection.send("GET", "/sbx/sb-1/download?path=/big", token=gw.token)
    _, headers = await connection.head()
    before = rss()
    await asyncio.wait_for(stalled.wait(), 20)  # the client does not read: the sidecar comes to a halt
    assert sent < 32 * MB
    received = 0
    peak = 0
    async for piece in connection.pieces(headers):
        received += len(piece)
        peak = max(peak, rss() - before)
    assert received == size
    assert peak < 32 * MB


async def test_a_large_upload_waits_for_a_slow_sidecar_in_bounded_memory(ready, client):
    size = 200 * MB
    go_on = asyncio.Event()
    received = 0

    async def behave(peer: Peer) -> None:
        nonlocal received
        request = await peer.request()
        await go_on.wait()
        async for piece in peer.pieces(request):
            received += len(piece)
        peer.answer(b"done")
        await peer.ended()

    gw, _ = await ready(behave)
    connection = await client(gw)
    before = rss()
    connection.send(
        "POST", "/sbx/sb-1/upload?path=/a", body=None, headers=(f"content-length: {size}",), token=gw.token
    )
    block = b"x" * 65536
    sent = 0
    peak = 0
    while sent < size:
        connection.writer.write(block)
        sent += len(block)
        try:
            async with asyncio.timeout(0.5):
                await connection.writer.drain()
        except TimeoutError:
            assert sent < 32 * MB  # the sidecar does not read: the client came to a halt
            go_on.set()
            await connection.writer.drain()
        peak = max(peak, rss() - before)
    assert go_on.is_set()
    assert (await connection.answer())[2] == b"done"
    assert received == size
    assert peak < 32 * MB


@pytest.mark.parametrize("moment", ["before the answer", "inside the answer", "inside the request"])
async def test_a_client_that_leaves_closes_the_sidecars_connection_at_once(ready, client, moment):
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def behave(peer: Peer) -> None:
        request = await peer.request()
        if moment == "inside the answer":
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        arrived.set()
        await peer.ended()
        assert request.method == "POST"
        left.set()

    gw, _ = await ready(behave)
    connection = await client(gw)
    if moment == "inside the request":
        connection.send(
            "POST", "/sbx/sb-1/upload", body=None, headers=("content-length: 100",), token=gw.token
        )
        connection.writer.write(b"some")
    else:
        connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await arrived.wait()
    if moment == "inside the answer":
        await connection.head()
    await connection.close()
    await asyncio.wait_for(left.wait(), 30)
    await until(lambda: 'sandlot_requests_total{code="gone"' in gw.metrics.text().decode())
    assert gw.pool.busy_connections == 0
    assert gw.plane.breaker.running == 0


async def test_a_client_that_leaves_the_queue_never_reaches_the_sidecar(ready, client):
    arrived = asyncio.Event()
    go_on = asyncio.Event()
    ran: list[bytes] = []

    async def behave(peer: Peer) -> None:
        while True:
            ran.append(await peer.body(await peer.request()))
            arrived.set()
            await go_on.wait()
            peer.answer(b"ok")

    gw, _ = await ready(behave, limits=Limits(per_sandbox=1))
    first, second, third = [await client(gw) for _ in range(3)]
    first.send("POST", "/sbx/sb-1/exec", body=b"first", token=gw.token)
    await arrived.wait()
    second.send("POST", "/sbx/sb-1/exec", body=b"second", token=gw.token)
    await until(lambda: gw.plane.breaker.waiting == 1)
    third.send("POST", "/sbx/sb-1/exec", body=b"third", token=gw.token)
    await until(lambda: gw.plane.breaker.waiting == 2)
    await second.close()
    await until(lambda: gw.plane.breaker.waiting == 1)
    go_on.set()
    assert (await first.answer())[0] == 200
    assert (await third.answer())[0] == 200
    assert ran == [b"first", b"third"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"", "502"),
        (b"HTTP/1.1 200 OK\r\nx-half: ", "502"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "cut"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", "cut"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n", "cut"),
    ],
)
async def test_a_sidecar_that_dies_is_never_taken_for_an_answer(ready, client, answer, outcome):
    ran = 0

    async def behave(peer: Peer) -> None:
        nonlocal ran
        await peer.body(await peer.request())
        ran += 1
        peer.send(answer)
        await peer.writer.drain()

    gw, server = await ready(behave)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    if outcome == "502":
        status, _, body = await connection.answer()
        assert status == 502
        assert b'"error":"sidecar_lost"' in body
        assert b'"may_have_run":true' in body
    else:
        with pytest.raises(asyncio.IncompleteReadError):
            await connection.answer()
    assert (ran, server.connections) == (1, 1)


async def test_a_sidecar_that_cannot_be_reached_ran_nothing(gateway, client, tmp_path):
    gw = await gateway()
    gw.route(f"unix:{tmp_path}/none.sock")
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, _, body = await connection.answer()
    assert status == 502
    assert b'"error":"sidecar_unreachable"' in body
    assert b'"may_have_run":false' in body


async def test_a_sidecar_lost_because_its_sandbox_ended_says_so(ready, client):
    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        gw.route("unix:/gone", status="TIMEOUT", verdict="deadline", message="its time was over")

    gw, _ = await ready(behave)
    connection = await client(gw)
    connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await connection.answer()
    assert (status, headers["x-sandlot-verdict"]) == (502, "deadline")
    assert b'"error":"sandbox_not_found"' in body
    assert b'"may_have_run":true' in body


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
async def test_an_answer_before_the_request_is_whole_is_delivered(ready, client, tcp):
    """A sidecar that refuses an upload answers and closes without reading it."""

    async def behave(peer: Peer) -> None:
        await peer.request()
        peer.answer(b'{"error":"too_large"}', status="413 Content Too Large", head=b"connection: close\r\n")
        await peer.writer.drain()
        peer.writer.close()
        await peer.writer.wait_closed()

    gw, _ = await ready(behave, tcp=tcp)
    for _ in range(20):
        connection = await client(gw)
        connection.send(
            "POST", "/sbx/sb-1/upload", body=None, headers=("content-length: 10000000",), token=gw.token
        )
        writing = asyncio.create_task(_write(connection, 10_000_000))
        status, _, body = await asyncio.wait_for(connection.answer(), 30)
        assert (status, body) == (413, b'{"error":"too_large"}')
        await connection.close()
        await asyncio.wait([writing])


async def _write(connection, size: int) -> None:
    try:
        while size > 0:
            connection.writer.write(b"x" * 65536)
            size -= 65536
            await connection.writer.drain()
    except ConnectionError:
        pass


async def test_expect_continue_is_answered_when_the_body_is_wanted(ready, client):
    seen = []
    gw, _ = await ready(echo(seen))
    connection = await client(gw)
    expect = ("expect: 100-continue", "content-length: 5")
    connection.send("POST", "/sbx/sb-1/upload", body=None, headers=expect, token=gw.token)
    status, _ = await connection.head()
    assert status == 100
    connection.writer.write(b"hello")
    assert (await connection.answer())[2] == b"hello"
    assert seen[0].header("expect") is None
    refused = await client(gw)
    refused.send("POST", "/sbx/sb-1/upload", body=None, headers=expect, token="wrong")
    assert (await refused.head())[0] == 401


async def test_pipelined_and_kept_alive_requests_do_not_mix(ready, client):
    """Many callers, requests sent before their answers, connections shared and sometimes closed by the sidecar."""

    async def behave(peer: Peer) -> None:
        for _ in range(7):
            peer.answer(await peer.body(await peer.request()))
        await peer.writer.drain()

    gw, _ = await ready(behave)

    async def caller(number: int) -> tuple[int, int]:
        connection = await client(gw)
        right = lost = 0
        for n in range(0, 60, 3):
            bodies = [f"{number}.{n + k}".encode() for k in range(3)]
            for body in bodies:
                connection.send("POST", "/sbx/sb-1/exec", body=body, token=gw.token)
            for body in bodies:
                status, _, answer = await connection.answer()
                if status == 200:
                    assert answer == body
                    right += 1
                else:
                    assert b'"error":"sidecar_lost"' in answer
                    lost += 1
        return right, lost

    outcomes = await asyncio.gather(*(caller(number) for number in range(8)))
    right, lost = (sum(column) for column in zip(*outcomes, strict=True))
    assert right + lost == 480
    # The sidecar closes without a word after every seventh answer, and the gateway may only notice by looking.
    assert lost == 0


async def test_a_full_breaker_answers_at_once(ready, client):
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            body = await peer.body(await peer.request())
            await go_on.wait()
            peer.answer(body)

    gw, _ = await ready(behave, limits=Limits(per_sandbox=2, queue_per_sandbox=1, retry_after=7))
    holding = [await client(gw) for _ in range(3)]
    for n, connection in enumerate(holding):
        connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
        await until(lambda n=n: gw.plane.breaker.running + gw.plane.breaker.waiting == n + 1)
    extra = await client(gw)
    extra.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await asyncio.wait_for(extra.answer(), 30)
    assert (status, headers["retry-after"]) == (503, "7")
    assert b'"error":"busy"' in body
    assert b'"running":2,"queued":1' in body
    # What steers a running op passes by the queue.
    go_on_quickly = asyncio.create_task(_ask(extra, gw, "POST", "/sbx/sb-1/ops/op-1/stdin?offset=0"))
    go_on.set()
    assert await go_on_quickly == 200
    for connection in holding:
        assert (await connection.answer())[0] == 200
    assert (gw.plane.breaker.running, gw.plane.breaker.waiting) == (0, 0)


async def test_one_tenants_commands_do_not_fill_the_gateway_for_another(ready, client):
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            body = await peer.body(await peer.request())
            await go_on.wait()
            peer.answer(body)

    gw, server = await ready(behave, limits=Limits(total=10))
    gw.route(server.address, sandbox_id="sb-2", tenant="other")
    asked = [("sb-1", "key-of-acme")] * 10 + [("sb-2", "key-of-other")]
    holding = [await client(gw) for _ in asked]
    for number, (connection, (box, key)) in enumerate(zip(holding, asked, strict=True)):
        connection.send("POST", f"/sbx/{box}/exec", body=b"{}", token=key)
        await until(lambda number=number: gw.plane.breaker.running == number + 1)
    for box, key in (asked[0], asked[-1]):
        extra = await client(gw)
        extra.send("POST", f"/sbx/{box}/exec", body=b"{}", token=key)
        status, _, body = await asyncio.wait_for(extra.answer(), 30)
        assert (status, b'"scope":"gateway"' in body) == (503, True), body
    go_on.set()
    for connection in holding:
        assert (await connection.answer())[0] == 200
    await until(lambda: gw.plane.breaker.running == 0)


async def _ask(connection, gw, method: str, path: str) -> int:
    connection.send(method, path, body=b"x", token=gw.token)
    return (await connection.answer())[0]


async def test_the_wait_in_the_queue_is_told_to_the_sidecar(ready, client):
    seen = []
    arrived = asyncio.Event()
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        while True:
            request = await peer.request()
            seen.append(request)
            body = await peer.body(request)
            arrived.set()
            await go_on.wait()
            peer.answer(body)

    gw, _ = await ready(behave, limits=Limits(per_sandbox=1))
    one, two = await client(gw), await client(gw)
    one.send("POST", "/sbx/sb-1/exec", body=b"{}", headers=("x-sandlot-queued: 99",), token=gw.token)
    await arrived.wait()
    two.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await until(lambda: gw.plane.breaker.waiting == 1)
    loop = asyncio.get_running_loop()
    waited_from = loop.time()
    go_on.set()
    await one.answer()
    await two.answer()
    assert seen[0].header("x-sandlot-queued") is None
    queued = float(seen[1].header("x-sandlot-queued"))
    assert 0 <= queued <= loop.time() - waited_from + 5


async def test_draining_lets_what_runs_end_and_refuses_the_rest(ready, client):
    arrived = asyncio.Event()
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        body = await peer.body(await peer.request())
        arrived.set()
        await go_on.wait()
        peer.answer(body)
        await peer.ended()

    gw, _ = await ready(behave)
    running, late = await client(gw), await client(gw)
    running.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    await arrived.wait()
    draining = asyncio.create_task(gw.plane.drain(5.0))
    await loop_turns()
    late.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    status, headers, body = await late.answer()
    assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
    assert b'"error":"draining"' in body
    go_on.set()
    assert (await running.answer())[0] == 200
    assert await draining == 0


async def test_draining_cuts_what_does_not_end(ready, client):
    arrived = asyncio.Event()
    left = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        arrived.set()
        await peer.ended()
        left.set()

    gw, _ = await ready(behave)
    running = await client(gw)
    running.send("POST", "/sbx/sb-1/ops", body=b"{}", token=gw.token)
    await arrived.wait()
    assert await gw.plane.drain(0.05) == 1
    await asyncio.wait_for(left.wait(), 30)
    # Not a 500, which clients take for the last word: under an op id the next gateway has the result.
    status, headers, body = await running.answer()
    assert (status, headers["connection"]) == (502, "close")
    assert b'"error":"gateway_ended"' in body
    assert b'"may_have_run":true' in body


async def test_descriptors_are_given_back_after_a_burst(ready, client):
    gw, _ = await ready(echo())
    before = len(os.listdir("/proc/self/fd"))
    connections = [await client(gw) for _ in range(100)]
    for connection in connections:
        connection.send("POST", "/sbx/sb-1/exec", body=b"{}", token=gw.token)
    for connection in connections:
        assert (await connection.answer())[0] == 200
        await connection.close()
    gw.pool.forget(gw.directory.find("sb-1").address)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 2)
