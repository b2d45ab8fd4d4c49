"""/mcp by plain HTTP: who may use it, its sessions, its revisions, and what it answers to hostile requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.conftest import API, Running
from tests.gateway.mcp_client import ACCEPT, call, initialized, post, request

NEWEST = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def test_it_is_off_by_default(box: Running) -> None:
    assert (await post(box, request("ping"))).status_code == 404


async def test_each_request_needs_a_key(mcp: Running) -> None:
    session = await initialized(mcp)
    for bad in ({"authorization": "Bearer wrong"}, {"authorization": ""}):
        for method in ("POST", "GET", "DELETE"):
            headers = {**ACCEPT, **bad, "mcp-session-id": session}
            answer = await mcp.client.request(method, "/mcp", headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), method


async def test_pages_may_use_it_only_from_named_origins(mcp: Running) -> None:
    for origin in (f"http://{mcp.url.removeprefix('http://')}", "null", "https://console.example.evil"):
        assert (await post(mcp, request("ping"), origin=origin)).status_code == 403
    assert (await post(mcp, request("ping"), origin="https://console.example")).status_code == 200
    assert (await post(mcp, request("ping"))).status_code == 200


async def test_a_session_is_of_one_key(mcp: Running) -> None:
    session = await initialized(mcp)
    made = (await call(mcp, "create_sandbox", session=session))["structuredContent"]
    listed = await call(mcp, "list_sandboxes", session=session)
    assert [one["sandbox_id"] for one in listed["structuredContent"]["sandboxes"]] == [made["sandbox_id"]]

    other = mcp.as_tenant("key-b")["Authorization"]
    ping = request("ping")
    assert (await post(mcp, ping, mcp_session_id=session)).status_code == 200
    for bad in (session[:-1] + ("A" if session[-1] != "A" else "B"), session.partition(".")[0], ".", "ü"):
        raw = [(b"content-type", b"application/json"), (b"mcp-session-id", bad.encode())]
        answer = await mcp.client.post("/mcp", content=json.dumps(ping), headers=raw)
        assert answer.status_code == 404, bad
    assert (await post(mcp, ping, mcp_session_id=session, authorization=other)).status_code == 404
    headers = {"mcp-session-id": session, "authorization": other}
    assert (await mcp.client.delete("/mcp", headers=headers)).status_code == 404

    theirs = await initialized(mcp, authorization=other)
    seen = await post(
        mcp,
        request("tools/call", name="get_sandbox", arguments={"sandbox_id": made["sandbox_id"]}),
        authorization=other,
        mcp_session_id=theirs,
    )
    assert seen.json()["result"]["isError"]
    assert seen.json()["result"]["_meta"]["sandlot/error"]["kind"] == "not_found"


async def test_the_end_of_a_session_deletes_its_sandboxes_and_no_others(mcp: Running) -> None:
    kept = await mcp.create()
    mine, others = await initialized(mcp), await initialized(mcp)
    sandboxes = [
        (await call(mcp, "create_sandbox", session=session))["structuredContent"]["sandbox_id"]
        for session in (mine, others)
    ]
    assert (await mcp.client.delete("/mcp")).status_code == 400
    assert (await mcp.client.delete("/mcp", headers={"mcp-session-id": mine})).status_code == 204
    states = [
        (await mcp.client.get(f"{API}/sandbox/{one}")).json()["status"] for one in (*sandboxes, kept["id"])
    ]
    assert states == ["TERMINATED", "RUNNING", "RUNNING"]


async def test_the_newest_revision_has_no_session(mcp: Running) -> None:
    headers = {"mcp_protocol_version": NEWEST, "mcp_method": "server/discover"}
    answer = await post(mcp, request("server/discover", _meta=META), **headers)
    found = answer.json()["result"]
    assert (answer.status_code, "mcp-session-id" in answer.headers) == (200, False)
    assert NEWEST in found["supportedVersions"]
    assert found["resultType"] == "complete"

    create = request("tools/call", name="create_sandbox", arguments={"labels": ["own"]}, _meta=META)
    headers = {"mcp_protocol_version": NEWEST, "mcp_method": "tools/call", "mcp_name": "create_sandbox"}
    answer = await post(mcp, create, **headers)
    assert answer.json()["result"]["structuredContent"]["labels"] == ["mcp", "own"]
    for wrong in ({"mcp_method": "tools/list"}, {"mcp_name": "exec"}, {"mcp_protocol_version": "2025-11-25"}):
        refused = await post(mcp, create, **{**headers, **wrong})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020), wrong
    future = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    refused = await post(
        mcp, request("tools/list", _meta=future), mcp_protocol_version="2099-01-01", mcp_method="tools/list"
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32022)
    assert NEWEST in refused.json()["error"]["data"]["supported"]


BAD_MESSAGES: list[tuple[bytes, int, int]] = [
    (b"", 400, -32700),
    (b"{", 400, -32700),
    (b"[" * 100_000, 400, -32700),
    (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}', 400, -32700),
    (b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}', 400, -32700),
    (b"\xff\xfe\xfa", 400, -32700),
    (b"[]", 400, -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', 200, -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["exec"]}}', 200, -32602),
]


async def test_bad_messages_are_errors_of_the_protocol(mcp: Running) -> None:
    for body, status, code in BAD_MESSAGES:
        answer = await post(mcp, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body[:80]
    assert (await post(mcp, request("ping"))).status_code == 200


WRONG_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("exec", {"sandbox_id": "x"}, "command"),
    ("exec", {"sandbox_id": "x", "command": "true", "shell": "/bin/evil"}, "shell"),
    ("exec", {"sandbox_id": "x", "command": "\ud800"}, "command"),
    ("exec", {"sandbox_id": "../../stats", "command": "true"}, "sandbox_id"),
    ("exec", {"sandbox_id": "x", "command": "true", "op_id": "../x"}, "op_id"),
    ("exec", {"sandbox_id": "x", "command": "true", "timeout_seconds": 1e308}, "timeout_seconds"),
    ("exec", {"sandbox_id": "x", "command": "true", "timeout_seconds": True}, "timeout_seconds"),
    ("exec", {"sandbox_id": "x", "command": "true", "env": {"A": 1}}, "env.A"),
    ("read_output", {"sandbox_id": "x", "op_id": ".."}, "op_id"),
    ("read_output", {"sandbox_id": "x", "op_id": "a", "max_bytes": 1 << 40}, "max_bytes"),
    ("write_file", {"sandbox_id": "x", "path": "a", "content": "*", "encoding": "base64"}, "content"),
    ("create_sandbox", {"memory": "much"}, "memory"),
    ("create_sandbox", {"labels": "one"}, "labels"),
    ("create_sandbox", {"labels": [""]}, "labels"),
    ("create_sandbox", {"allow": ["a.example"], "deny": []}, "allow"),
]


async def test_wrong_arguments_are_told_to_the_model(mcp: Running) -> None:
    session = await initialized(mcp)
    for tool, given, named in WRONG_ARGUMENTS:
        result = await call(mcp, tool, session=session, **given)
        assert result["isError"], given
        assert result["_meta"]["sandlot/error"]["kind"] == "invalid", result
        assert named in result["content"][0]["text"]


async def test_other_kinds_of_requests_are_refused(mcp: Running) -> None:
    answer = await mcp.client.get("/mcp", headers=ACCEPT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, DELETE")
    assert (await post(mcp, request("ping"), content_type="text/plain")).status_code == 415
    assert (await post(mcp, b"x" * (3 << 20))).status_code == 413
    assert (await post(mcp, {"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
    assert (await post(mcp, {"jsonrpc": "2.0", "id": 7, "result": {}})).status_code == 202


async def test_no_key_or_session_is_logged(mcp: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    session = await initialized(mcp)
    await call(mcp, "create_sandbox", session=session, env={"TOKEN": "hidden-value"})
    await call(mcp, "exec", session=session, sandbox_id="nope", command="echo hidden-value")
    assert await mcp.client.delete("/mcp", headers={"mcp-session-id": session})
    own = [record for record in caplog.records if record.name.startswith(("sandlot", "uvicorn"))]
    assert own
    text = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in own)
    for secret in (session, "key-a", "hidden-value"):
        assert secret not in text
