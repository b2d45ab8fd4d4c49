"""Exposed ports of a sandbox: by path for HTTP, whose they are, and how many there may be."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from sandlot_gateway.data.expose import Exposures
from sandlot_gateway.data.exposure import ExposeError

from tests.dataplane.upstreams import Peer, Request, echo


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


async def test_an_app_sends_no_header_that_acts_on_the_whole_origin(exposed, client):
    origin_wide = (
        b"Service-Worker-Allowed: /",
        b"Cross-Origin-Opener-Policy: same-origin",
        b'NEL: {"report_to": "app", "max_age": 86400, "include_subdomains": true}',
        b'Report-To: {"group": "app", "max_age": 86400, "endpoints": [{"url": "https://app.test/"}]}',
        b'Reporting-Endpoints: app="https://app.test/"',
        b'Clear-Site-Data: "*"',
        b"Strict-Transport-Security: max-age=86400",
        b'Alt-Svc: h2="app.test:443"',
    )

    async def app(peer: Peer) -> None:
        await peer.request()
        peer.answer(head=b"".join(line + b"\r\n" for line in (*origin_wide, b"X-Own: 1")))

    gw, exposure, _, _ = await exposed(app)
    connection = await client(gw)
    connection.send("GET", exposure.path, body=None)
    status, headers, _ = await connection.answer()
    assert (status, headers["x-own"]) == (200, "1")
    assert not {line.split(b":")[0].decode().lower() for line in origin_wide} & set(headers)


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
        ({"port": 80, "protocol": "SCTP"}, "protocol"),
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
    assert "cannot read the exposures" in caplog.text


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
