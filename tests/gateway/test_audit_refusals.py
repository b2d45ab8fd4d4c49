"""Audit records of control calls that are refused, or whose callers leave, and of what is no control call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandlot_gateway.edge import Clients

from tests.gateway.audit_records import record_of, records
from tests.gateway.audited import Audited, audited
from tests.gateway.conftest import API, KEY, OPERATOR
from tests.gateway.machine import Machine
from tests.gateway.test_server import connect
from tests.waiting import until

__all__ = ["audited"]


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "error"),
    [
        ("GET", "/sandbox", {"key": None}, 401, "unauthenticated"),
        ("GET", "/sandbox", {"key": "guess"}, 401, "unauthenticated"),
        ("POST", "/sandbox", {"key": "guess", "json": {}}, 401, "unauthenticated"),  # its body is not read
        ("PUT", "/pools/shared", {"json": {"size": 1}}, 403, "forbidden"),
        ("DELETE", "/sandbox/none", {}, 404, "not_found"),
        ("PATCH", "/sandbox", {}, 405, "method_not_allowed"),
        ("GET", "/no/such/route", {}, 404, "not_found"),
        ("POST", "/sandbox", {"json": {"docker_image": 1}}, 422, "invalid"),
        ("POST", "/sandbox", {"content": b"x" * (3 << 20)}, 413, "body_too_large"),
        ("GET", "/images", {}, 501, "not_implemented"),
    ],
)
async def test_a_call_that_is_refused_leaves_one_too(
    audited: Audited, method: str, path: str, options: dict[str, Any], status: int, error: str
) -> None:
    if path == "/pools/shared":
        await audited.call(
            "PUT", f"{API}{path}", key=OPERATOR, json={"size": 0, "image": "host", "owner": ""}
        )
    _, record = await audited.call(method, f"{API}{path}", **options)
    assert (record["status"], record["error"]) == (status, error)
    known = status != 401
    assert record["tenant"] == ("alpha" if known else None)
    assert (record["key"] is None) == (options.get("key", KEY) is None)


async def test_a_create_over_the_quota_and_one_while_the_gateway_ends_say_why(audited: Audited) -> None:
    body = {"docker_image": "host", "run": "r"}
    for status in (201, 201, 429):
        _, record = await audited.call("POST", f"{API}/sandbox", key="key-small", json=body)
        assert record["status"] == status
    assert (record["error"], record["tenant"], record["run"]) == ("quota", "small", "r")
    await audited.box.gateway.edge.drain(Clients.ALL, timeout=0)
    _, record = await audited.call("POST", f"{API}/sandbox", json=body)
    assert (record["status"], record["error"], record["action"]) == (503, "draining", "sandbox.create")


async def test_one_whose_caller_leaves_before_an_answer_says_that(audited: Audited) -> None:
    _, writer = await connect(audited.box)
    head = f"POST {API}/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    writer.write(f"{head}X-Request-Id: left\r\nContent-Length: 10\r\n\r\n".encode())
    writer.close()
    record = await record_of(audited.path, "left")
    assert (record["status"], record["error"], record["tenant"]) == (None, "no_answer", "alpha")


async def test_a_create_whose_caller_left_is_none_that_was_answered(
    audited: Audited, machine: Machine
) -> None:
    machine.hold_ready = asyncio.Event()
    _, writer = await connect(audited.box)
    body = b'{"docker_image": "host"}'
    head = f"POST {API}/sandbox HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}X-Request-Id: left\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await until(lambda: audited.box.gateway.supply.waiting == 1)
    writer.close()
    await writer.wait_closed()
    await audited.call("GET", f"{API}/stats")  # by which the gateway has seen that
    machine.hold_ready.set()
    record = await record_of(audited.path, "left")
    assert (record["action"], record["status"], record["error"]) == ("sandbox.create", None, "no_answer")
    assert record["id"] is not None


async def test_a_handshake_below_the_control_api_leaves_one(audited: Audited) -> None:
    made, _ = await audited.create()
    for path in (f"{API}/sandbox", f"/sbx/{made['id']}/terminal"):
        reader, writer = await connect(audited.box)
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nX-Request-Id: ws\r\n"
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        writer.write(f"{head}{upgrade}Sec-WebSocket-Key: {'a' * 22}==\r\n\r\n".encode())
        await reader.readline()
        writer.close()
    record = await record_of(audited.path, "ws")
    assert (record["action"], record["status"], record["error"]) == ("unknown.call", 404, "not_found")
    assert record["tenant"] == "alpha"


async def test_outside_of_the_control_api_only_a_missing_right_leaves_one(audited: Audited) -> None:
    _, record = await audited.call("GET", "/metrics")
    assert (record["action"], record["status"], record["tenant"]) == ("metrics.get", 403, "alpha")
    _, record = await audited.call("GET", "/internal/claims?tenant=alpha")
    assert (record["action"], record["status"]) == ("peer.call", 401)
    made = await audited.box.create()
    paths = ("/healthz", "/readyz", "/nothing", f"/sbx/{made['id']}/exec", "/expose/none/")
    for path in paths:
        await audited.box.client.get(path, headers={"X-Request-Id": "outside"})
    await audited.box.metrics()
    await audited.call("GET", f"{API}/stats")
    assert not [record for record in records(audited.path) if record["request"] == "outside"]
    assert [record["status"] for record in records(audited.path) if record["kind"] == "metrics"] == [403]
