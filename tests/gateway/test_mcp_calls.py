"""Calls by /mcp that last: cancelled or cut by a drain, bounded for each tenant, and answers that nobody reads."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import ExitStack
from typing import Any

from sandlot.integrations.mcp import wire
from sandlot.integrations.mcp.http_answers import Answer, keep_open
from sandlot.integrations.mcp.in_flight import InFlight
from sandlot.integrations.mcp.session import writer

from tests import plain_http
from tests.gateway.conftest import API, Running, running
from tests.gateway.mcp_client import call, initialized, post, request
from tests.waiting import SECONDS, until


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
