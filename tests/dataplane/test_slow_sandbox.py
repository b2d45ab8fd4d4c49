"""Calls to a sandbox that lives and is behind wait for their connection; of one that is dead they hear why."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest
from sandlot_contract.statuses import Status
from sandlot_gateway.data.connection_queue import ConnectionQueueSettings
from sandlot_gateway.data.dial import DialSettings
from sandlot_gateway.data.pool import DialError, HttpPool, PoolSettings

from tests.dataplane.slow import SlowUpstream
from tests.dataplane.upstreams import Peer, Request, echo
from tests.ports import free_port
from tests.waiting import until

QUICK = DialSettings(timeout=0.2, first_timeout=0.02, backoff=0.001, max_backoff=0.02)
TENTHS = ConnectionQueueSettings(refused_for=0.3, silent_for=0.6)


@pytest.fixture
def slow(stack):
    def make(behave) -> SlowUpstream:
        upstream = SlowUpstream(behave)
        stack.push_async_callback(upstream.close)
        return upstream

    return make


async def _exec(client, gw, n: int) -> tuple[int, bytes]:
    one = await client(gw)
    one.send("POST", "/sbx/sb-1/exec", body=b"%d" % n, token=gw.token)
    status, _, body = await one.answer()
    return status, body


def _failed(gw) -> float:
    """Attempts to connect that failed so far."""
    found = re.search(rb'sandlot_dials_total{result="failed"} (\S+)', gw.metrics.text())
    return float(found[1]) if found else 0.0


async def test_fifty_calls_wait_for_a_sandbox_that_accepts_late_and_run_once(gateway, client, slow):
    requests: list[Request] = []
    server = slow(echo(requests))
    gw = await gateway(pool=PoolSettings(dial=QUICK))
    gw.route(server.address)
    calls = [asyncio.create_task(_exec(client, gw, n)) for n in range(50)]
    await until(lambda: _failed(gw) >= 40)
    assert not any(call.done() for call in calls)
    await server.accept()
    assert await asyncio.gather(*calls) == [(200, b"%d" % n) for n in range(50)]
    assert len(requests) == 50
    assert server.connections < 50


async def test_a_call_that_is_served_by_a_returned_connection_needs_no_dial(gateway, client, upstream):
    server = await upstream(echo())
    gw = await gateway()
    gw.route(server.address)
    calls = [asyncio.create_task(_exec(client, gw, n)) for n in range(100)]
    assert [status for status, _ in await asyncio.gather(*calls)] == [200] * 100
    assert server.connections < 50


async def test_connections_grow_to_as_many_as_commands_run(gateway, client, upstream):
    """No bound on busy ones: a hundred commands that wait for one another must all be running."""
    running = asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.body(await peer.request())
        running.release()
        await go_on.wait()
        peer.answer(b"done")
        await peer.ended()

    server = await upstream(behave)
    gw = await gateway()
    gw.route(server.address)
    calls = [asyncio.create_task(_exec(client, gw, n)) for n in range(100)]
    for _ in calls:
        await running.acquire()
    go_on.set()
    assert await asyncio.gather(*calls) == [(200, b"done")] * 100


async def test_who_leaves_while_it_waits_for_a_connection_runs_nothing(gateway, client, slow):
    requests: list[Request] = []
    server = slow(echo(requests))
    gw = await gateway(pool=PoolSettings(dial=QUICK))
    gw.route(server.address)
    leaver = await client(gw)
    leaver.send("POST", "/sbx/sb-1/exec", body=b"leaves", token=gw.token)
    half = await client(gw)  # its body is not whole when it leaves
    half.send("POST", "/sbx/sb-1/upload", body=None, headers=("content-length: 9",), token=gw.token)
    half.writer.write(b"part")
    stays = asyncio.create_task(_exec(client, gw, 1))
    await until(lambda: gw.plane.breaker.running == 3)
    await until(lambda: _failed(gw) >= 5)
    await leaver.close()
    await half.close()
    await until(lambda: gw.plane.breaker.running == 1)
    await server.accept()
    assert await stays == (200, b"1")
    assert [request.target for request in requests] == ["/v1/exec"]


async def test_an_upload_that_waited_for_its_connection_is_whole(gateway, client, slow):
    server = slow(echo())
    gw = await gateway(pool=PoolSettings(dial=QUICK))
    gw.route(server.address)
    one = await client(gw)
    one.send("POST", "/sbx/sb-1/upload", body=None, headers=("content-length: 9",), token=gw.token)
    one.writer.write(b"abc")
    await until(lambda: _failed(gw) >= 3)
    one.writer.write(b"def")
    await until(lambda: _failed(gw) >= 6)
    await server.accept()
    one.writer.write(b"ghi")
    status, _, body = await one.answer()
    assert (status, body) == (200, b"abcdefghi")


async def test_a_sandbox_that_ends_tells_those_who_wait_at_once(gateway, client, slow):
    server = slow(echo())
    gw = await gateway(pool=PoolSettings(dial=QUICK))
    route = gw.route(server.address)
    calls = [asyncio.create_task(_exec(client, gw, n)) for n in range(5)]
    await until(lambda: _failed(gw) >= 5)
    gw.directory.become(replace(route, status=Status.ERROR, verdict="node_lost", message="the node is gone"))
    gw.pool.give_up(server.address, "the sandbox has ended")
    for status, body in await asyncio.gather(*calls):
        told = json.loads(body)
        assert (status, told["error"], told["verdict"]) == (502, "sandbox_not_found", "node_lost")
        assert told["may_have_run"] is False


async def test_a_refusal_is_told_when_the_backend_had_its_time_to_say_why(gateway, client):
    address = f"127.0.0.1:{free_port()}"
    gw = await gateway(pool=PoolSettings(dial=QUICK, line=TENTHS))
    gw.route(address)
    status, body = await _exec(client, gw, 1)
    told = json.loads(body)
    assert (status, told["error"], told["sandbox"]) == (502, "sidecar_unreachable", "refusing")
    assert told["may_have_run"] is False
    assert "refused" in told["message"]


async def test_a_silent_sandbox_is_told_as_such(gateway, client, slow):
    server = slow(echo())
    gw = await gateway(pool=PoolSettings(dial=QUICK, line=TENTHS))
    gw.route(server.address)
    status, body = await _exec(client, gw, 1)
    told = json.loads(body)
    assert (status, told["error"], told["sandbox"]) == (502, "sidecar_unreachable", "silent")


async def test_a_heartbeat_tells_that_a_silent_sandbox_is_only_slow(slow, stack):
    server = slow(echo())
    pool = HttpPool(settings=PoolSettings(dial=QUICK, line=ConnectionQueueSettings(silent_for=8.0)))
    stack.push_async_callback(pool.close)
    waiting = asyncio.create_task(pool.acquire(server.address, known_alive=True, timeout=9.0))
    while not waiting.done():
        pool.heard(server.address)
        await asyncio.wait({waiting}, timeout=0.2)
    with pytest.raises(DialError, match="slow, not dead") as error:
        await waiting
    assert error.value.peer == "slow"


async def test_a_call_with_a_time_of_its_own_ends_at_it(slow, stack):
    server = slow(echo())
    pool = HttpPool(settings=PoolSettings(dial=QUICK))
    stack.push_async_callback(pool.close)
    with pytest.raises(DialError, match=r"no connection within 0\.2 s; it is silent"):
        await pool.fetch(server.address, "GET", "/", timeout=0.2, known_alive=True)
