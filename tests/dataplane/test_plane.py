"""What the data plane lets through, to whom, and how it says no."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from sandlot_gateway.data.breaker import Limits

from tests.dataplane.plane_calls import ask
from tests.dataplane.upstreams import Request, echo


async def test_exec_reaches_the_sidecar_with_its_own_token(gateway, upstream, client):
    requests: list[Request] = []
    server = await upstream(echo(requests))
    gw = await gateway()
    gw.route(server.address)
    connection = await client(gw)
    status, _, body = await ask(
        connection, token=gw.token, body=b"hello", headers=("x-sandlot-op: op-7", "x-odd: a  b")
    )
    assert (status, body) == (200, b"hello")
    (request,) = requests
    assert (request.method, request.target) == ("POST", "/v1/exec")
    assert request.header("authorization") == "Bearer sst_of_the_sidecar"
    assert request.header("x-sandlot-op") == "op-7"
    assert request.header("x-odd") == "a  b"
    assert request.header("host") == "sidecar"
    assert request.header("x-request-id")
    assert gw.token not in request.raw.decode()
    assert gw.directory.touches == ["sb-1"]


@pytest.mark.parametrize("token", ["", "nonsense", "sct_x.y", "sct_" + "A" * 5000, "key-of-nobody"])
async def test_no_credential_no_answer(gateway, upstream, client, token):
    requests: list[Request] = []
    server = await upstream(echo(requests))
    gw = await gateway()
    gw.route(server.address)
    status, headers, document = await ask(await client(gw), token=token)
    assert (status, document["error"]) == (401, "unauthorized")
    assert headers["www-authenticate"] == "Bearer"
    assert requests == []


async def test_what_nothing_expects_is_answered_as_every_error(gateway, client, caplog):
    gw = await gateway()
    gw.keys.keys = None  # so that to look for a key fails
    options = {"token": "key-of-acme", "headers": ("x-request-id: mine",)}
    status, headers, document = await ask(await client(gw), **options)
    assert (status, document["error"], document["may_have_run"]) == (503, "internal", True)
    assert (headers["x-request-id"], headers["retry-after"]) == ("mine", "1")
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.request == "mine"


async def test_a_token_opens_its_own_sandbox_only_and_expires(gateway, upstream, client):
    server = await upstream(echo())
    gw = await gateway()
    gw.route(server.address)
    gw.route(server.address, sandbox_id="sb-2")
    connection = await client(gw)
    other = gw.tokens.client("sb-2", "acme", int(time.time()) + 60)
    assert (await ask(connection, token=other))[0] == 401
    assert (await ask(connection, token=gw.tokens.client("sb-1", "acme", int(time.time()) - 1)))[0] == 401
    assert (await ask(connection, token=gw.tokens.client("sb-1", "acme", int(time.time()) + 60)))[0] == 200


async def test_the_owners_key_opens_it_and_another_tenants_does_not_even_see_it(gateway, upstream, client):
    server = await upstream(echo())
    gw = await gateway()
    gw.route(server.address)
    connection = await client(gw)
    assert (await ask(connection, token="key-of-acme"))[0] == 200
    foreign = await ask(connection, token="key-of-other")
    connection.send("POST", "/sbx/sb-none/exec", token="key-of-other")
    status, _, body = await connection.answer()
    assert (status, json.loads(body)) == (foreign[0], foreign[2])
    assert foreign[2]["error"] == "sandbox_not_found"


async def test_one_that_another_gateway_may_just_have_made_is_not_called_unknown(gateway, client):
    gw = await gateway()
    gw.directory.coming.add("sb-1")
    connection = await client(gw)
    asking = asyncio.create_task(ask(connection, token="key-of-acme"))
    await gw.directory.waited.wait()
    gw.route("unix:/nowhere", sandbox_id="sb-2")  # wakes who waits
    status, headers, document = await asking
    assert (status, document["error"]) == (503, "sandbox_not_known_yet")
    assert int(headers["retry-after"]) >= 1


async def test_an_ended_sandbox_says_why(gateway, client):
    gw = await gateway()
    gw.route("unix:/nowhere", status="ERROR", verdict="oom", message="memory limit reached")
    status, headers, document = await ask(await client(gw), token=gw.token)
    assert (status, headers["x-sandlot-verdict"]) == (502, "oom")
    assert (document["error"], document["verdict"], document["message"]) == (
        "sandbox_not_found",
        "oom",
        "memory limit reached",
    )


async def test_the_sidecars_own_word_that_it_ended_reads_the_same(gateway, upstream, client):
    async def behave(peer):
        while True:
            await peer.body(await peer.request())
            peer.answer(b'{"error":"ended","verdict":"idle","message":"idle for 5 s"}', status="410 Gone")

    server = await upstream(behave)
    gw = await gateway()
    gw.route(server.address)
    status, headers, document = await ask(await client(gw), token=gw.token)
    assert (status, document["error"], document["verdict"]) == (502, "sandbox_not_found", "idle")
    assert headers["x-sandlot-verdict"] == "idle"


async def test_a_sidecar_that_rejects_our_token_does_not_blame_the_clients(gateway, upstream, client):
    async def behave(peer):
        await peer.body(await peer.request())
        peer.answer(b'{"error":"unauthorized"}', status="401 Unauthorized")

    server = await upstream(behave)
    gw = await gateway()
    gw.route(server.address)
    status, _, document = await ask(await client(gw), token=gw.token)
    assert (status, document["error"], document["may_have_run"]) == (502, "sidecar_unreachable", False)
    assert "master keys" in document["message"]


async def test_an_expired_op_stays_410(gateway, upstream, client):
    async def behave(peer):
        await peer.body(await peer.request())
        peer.answer(b'{"error":"expired"}', status="410 Gone")

    server = await upstream(behave)
    gw = await gateway()
    gw.route(server.address)
    status, _, document = await ask(await client(gw), token=gw.token)
    assert (status, document) == (410, {"error": "expired"})


async def test_a_starting_sandbox_is_waited_for(gateway, upstream, client):
    server = await upstream(echo())
    gw = await gateway()
    gw.route("unix:/not-yet", status="PENDING")
    connection = await client(gw)
    asking = asyncio.create_task(ask(connection, token=gw.token, body=b"x"))
    await gw.directory.waited.wait()
    assert not asking.done()
    gw.route(server.address)
    assert (await asking)[0] == 200


async def test_a_sandbox_that_keeps_starting_is_503(gateway, client):
    gw = await gateway(limits=Limits(pending_wait=0.05, retry_after=3))
    gw.route("unix:/not-yet", status="PENDING")
    status, headers, document = await ask(await client(gw), token=gw.token)
    assert (status, headers["retry-after"], document["error"]) == (503, "3", "sandbox_pending")


@pytest.mark.parametrize(
    "path",
    [
        "/claim",
        "/reset",
        "/end",
        "/state",
        "/metrics",
        "/healthz",
        "/tcp?port=22",
        "/",
        "",
        "//exec",
        "/exec%2fx",
        "/v1/exec",
        "/Exec",
    ],
)
async def test_only_the_listed_routes_exist(gateway, upstream, client, path):
    requests: list[Request] = []
    server = await upstream(echo(requests))
    gw = await gateway()
    gw.route(server.address)
    status, _, document = await ask(await client(gw), path=path, token=gw.token)
    assert (status, document["error"]) == (404, "no_such_route")
    assert requests == []


@pytest.mark.parametrize(
    "path",
    ["/ops/../claim", "/files/%2e%2e/claim", "/ops/.", "/ops/%2E%2e", "/ops/..%2fclaim", "/ops/..%5cclaim"],
)
async def test_a_path_cannot_climb_out(gateway, upstream, client, path):
    requests: list[Request] = []
    server = await upstream(echo(requests))
    gw = await gateway()
    gw.route(server.address)
    status, _, document = await ask(await client(gw), path=path, token=gw.token)
    assert (status, document["error"], document["field"]) == (400, "bad_path", "path")
    assert requests == []
