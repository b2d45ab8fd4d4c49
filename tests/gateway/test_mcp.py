"""/mcp by plain HTTP: who may use it, its sessions, its revisions, and what it answers to hostile requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.http_answers import Answer, keep_open
from sandlot.integrations.mcp.in_flight import InFlight
from sandlot.integrations.mcp.session import writer

from tests import plain_http
from tests.gateway.conftest import API, API_KEYS, Running, running
from tests.waiting import SECONDS, until

ACCEPT = {"accept": "application/json, text/event-stream"}
NEWEST = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
async def mcp(state_dir, machine) -> AsyncIterator[Running]:
    keys = f"{API_KEYS},key-a2:alpha"
    async with running(
        state_dir, machine, mcp=True, mcp_origins="https://console.example", api_keys=keys
    ) as box:
        yield box


async def post(box: Running, message: Any, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    sent = {"content-type": "application/json", **ACCEPT, **named}
    return await box.client.post("/mcp", content=body, headers=sent)


def request(method: str, identity: int | str = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


async def initialized(box: Running, **headers: str) -> str:
    """A session's id."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    answer = await post(box, request("initialize", **params), **headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"]["protocolVersion"] == "2025-06-18"
    return answer.headers["mcp-session-id"]


async def call(box: Running, tool: str, *, session: str, identity: int = 1, **given: Any) -> dict[str, Any]:
    answer = await post(
        box, request("tools/call", identity, name=tool, arguments=given), mcp_session_id=session
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


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


async def test_the_end_of_a_session_ends_its_calls(mcp: Running) -> None:
    mine, others = await initialized(mcp), await initialized(mcp)
    mcp.machine.hold_ready = asyncio.Event()
    create = request("tools/call", 4, name="create_sandbox", arguments={})
    ended, stays = (
        asyncio.create_task(post(mcp, create, mcp_session_id=session)) for session in (mine, others)
    )
    await until(lambda: _are_live(mcp, 2))
    assert (await mcp.client.delete("/mcp", headers={"mcp-session-id": mine})).status_code == 204
    assert (await ended).json()["error"]["code"] == -32800
    mcp.machine.hold_ready.set()
    assert not (await stays).json()["result"]["isError"]
    assert len(await _live(mcp)) == 1


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


async def test_a_cancelled_or_abandoned_call_leaves_nothing(mcp: Running) -> None:
    session = await initialized(mcp)
    mcp.machine.hold_ready = asyncio.Event()

    async def live() -> list[str]:
        return await _live(mcp)

    running_call = asyncio.create_task(
        post(mcp, request("tools/call", 9, name="create_sandbox", arguments={}), mcp_session_id=session)
    )
    await until(live)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    # Another session's request of the same id is not meant.
    assert (await post(mcp, cancel, mcp_session_id=await initialized(mcp))).status_code == 202
    assert await live()
    assert (await post(mcp, cancel, mcp_session_id=session)).status_code == 202
    assert (await running_call).json()["error"]["code"] == -32800
    await until(lambda: _none(live))

    abandoned = asyncio.create_task(
        post(mcp, request("tools/call", 10, name="create_sandbox", arguments={}), mcp_session_id=session)
    )
    await until(live)
    abandoned.cancel()
    await until(lambda: _none(live))
    mcp.machine.hold_ready.set()


async def test_a_tenant_has_a_bounded_share(mcp: Running) -> None:
    session = await initialized(mcp)
    mcp.machine.hold_ready = asyncio.Event()
    create = request("tools/call", name="create_sandbox", arguments={})
    keys = ["Bearer key-a", "Bearer key-a2"] * 33
    waiting = [asyncio.create_task(post(mcp, create, authorization=key)) for key in keys[:65]]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result().status_code for task in done] == [503]
    assert (await mcp.client.delete("/mcp", headers={"mcp-session-id": session})).status_code == 503
    assert (await post(mcp, request("ping"), authorization="Bearer key-b")).status_code == 200
    for task in waiting:
        task.cancel()
    mcp.machine.hold_ready.set()


async def test_a_command_whose_output_cannot_be_read_is_found_again_by_its_id(mcp: Running) -> None:
    session = await initialized(mcp)
    box = (await call(mcp, "create_sandbox", session=session))["structuredContent"]["sandbox_id"]
    run = {"sandbox_id": box, "command": "make", "op_id": "op-7"}
    refused = await call(mcp, "exec", session=session, **run)
    assert refused["isError"]
    assert "op-7" not in refused["content"][0]["text"]  # it has not begun
    ended = {"op_id": "op-7", "state": "ended", "verdict": "exited", "exit_code": 0, "stdout_bytes": 9}
    mcp.machine.of_sandbox(box).ops_answer = 200, ended
    lost = await call(mcp, "exec", session=session, **run)
    assert "read_output with op_id op-7" in lost["content"][0]["text"], lost
    assert "op-7" in lost["_meta"]["sandlot/error"]["message"]


async def test_another_tenant_does_not_hold_up_a_command_s_input() -> None:
    async with writer("beta", "sandbox", "op"):
        assert not writer("alpha", "sandbox", "op").locked()
        assert writer("beta", "sandbox", "op").locked()


async def test_a_quota_that_is_full_is_told_within_the_wait(mcp: Running) -> None:
    small = "Bearer key-small"
    create = request("tools/call", name="create_sandbox", arguments={"wait_seconds": 1})
    for _ in range(2):
        made = await post(mcp, create, authorization=small)
        assert not made.json()["result"]["isError"]
    refused = await post(mcp, create, authorization=small)
    assert refused.json()["result"]["_meta"]["sandlot/error"]["kind"] == "busy"


async def test_calls_in_flight_end_when_the_gateway_drains(state_dir, machine) -> None:
    async with running(state_dir, machine, mcp=True, drain=SECONDS) as box:
        session = await initialized(box)
        machine.hold_ready = asyncio.Event()
        create = request("tools/call", 3, name="create_sandbox", arguments={})
        calling = asyncio.create_task(post(box, create, mcp_session_id=session))
        await until(lambda: _live(box))
        box.backend.single_gateway = (
            False  # then the edge refuses its clients, and it waits for pending creates
        )
        box.ending.begin()
        await until(lambda: _is_refused(box))
        machine.hold_ready.set()
        answer = await calling
        assert answer.json()["result"]["structuredContent"]["status"] == "RUNNING"
        assert await box.task == 0


async def test_a_drain_cuts_calls_that_take_too_long(state_dir, machine) -> None:
    async with running(state_dir, machine, mcp=True, drain=0.3) as box:
        machine.hold_ready = asyncio.Event()
        create = request("tools/call", 3, name="create_sandbox", arguments={})
        calling = asyncio.create_task(post(box, create))
        await until(lambda: _live(box))
        box.ending.begin()
        assert "shutting down" in (await calling).json()["error"]["message"]
        assert box.gateway.directory.verdicts("alpha") == {"deleted": 1}
        assert await box.task == 0


async def test_a_long_call_is_kept_open() -> None:
    sent: list[Any] = []
    task: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body", b"").startswith(b":"):
            task.set_result(Answer(200, document={"id": 1, "result": {}}))

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    call = wire.parse(json.dumps(request("ping")).encode())
    await keep_open(task, receive, send, call=call, headers={}, accepts_stream=True, quiet=0.01)
    assert dict(sent[0]["headers"])[b"content-type"] == b"text/event-stream"
    assert [message.get("body") for message in sent[1:]] == [
        b": running\n\n",
        b'event: message\ndata: {"id":1,"result":{}}\n\n',
    ]


async def test_a_client_that_reads_nothing_holds_one_piece() -> None:
    call = wire.parse(json.dumps(request("ping")).encode())
    encoded = b"{" + b" " * 500_000 + b"}"
    taken: list[int] = []

    async def send(message: Any) -> None:
        taken.append(len(message.get("body", b"")))
        if len(taken) > 3:
            await asyncio.Event().wait()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def answered() -> Answer:
        return Answer(200, encoded=encoded)

    task = asyncio.ensure_future(answered())
    open_one = keep_open(task, receive, send, call=call, headers={}, accepts_stream=True, read_within=0.05)
    await asyncio.wait_for(open_one, 30)
    assert taken == [0, 65536, 65536, 65536]


async def test_unread_results_are_bounded_for_each_tenant_and_in_all() -> None:
    flight = InFlight()
    with ExitStack() as stack:
        held: Counter[str] = Counter()
        for tenant in "abcde" * 5:
            held[tenant] += flight.hold(stack.enter_context(flight.one(tenant)), 5 << 20)
        assert held == {"a": 3, "b": 3, "c": 2, "d": 2, "e": 2}
        assert flight.hold(stack.enter_context(flight.one("a")), 1000)
    with flight.one("a") as after:
        assert flight.hold(after, 5 << 20)


async def _live(box: Running) -> list[str]:
    listed = await box.client.get(f"{API}/sandbox", params={"is_active": "true"})
    return [one["id"] for one in listed.json()["sandboxes"]]


async def _are_live(box: Running, count: int) -> bool:
    return len(await _live(box)) == count


async def _is_refused(box: Running) -> bool:
    # On a connection of its own: those that idle are closed.
    async with plain_http.async_client(base_url=box.url, headers=box.as_tenant("key-a")) as client:
        return (await client.get(f"{API}/sandbox")).status_code == 503


async def _none(live: Any) -> bool:
    return not await live()


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
