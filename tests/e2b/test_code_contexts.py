"""Contexts of the code interpreter at a real sidecar: what ends between two of a call's requests, or leaves in them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.errors import ClientGone
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.routes import Route
from sandlot_gateway.e2b import code_cells, code_contexts
from sandlot_gateway.e2b.failures import EnvdFailure
from sandlot_gateway.e2b.grouped_response import GroupedResponse
from sandlot_gateway.e2b.sidecar_call import SidecarCall
from sandlot_gateway.tasks import Tasks

from tests.sidecar.conftest import Make, make
from tests.sidecar.support import Sidecar
from tests.stopped import stopped
from tests.waiting import until

pytestmark = pytest.mark.root

__all__ = ["make"]


async def stays() -> dict[str, Any]:
    """A client that does not leave."""
    return await asyncio.get_running_loop().create_future()


class Call(SidecarCall):
    """Ends the program `ends` just before the first stream is opened: after it was found, and before it is written to."""

    ends: str | None = None
    holds = False  # then no stream is opened

    async def open(self, method: str, target: str, **more: Any) -> Connection:
        if self.holds:
            await asyncio.get_running_loop().create_future()
        if self.ends is not None:
            op_id, self.ends = self.ends, None
            pid = (await self.fetch("GET", f"/v1/ops/{op_id}")).json()["pid"]
            await self.fetch("POST", "/v1/ops?wait=50", json={"command": f"kill -9 {pid}"})
            await self.fetch("GET", f"/v1/ops/{op_id}?wait=50")
        return await super().open(method, target, **more)


@pytest_asyncio.fixture
async def sidecar(make: Make) -> Sidecar:
    return await make(claim={})


def calls(pool: HttpPool, sidecar: Sidecar) -> Call:
    route = Route(SandboxId("sb-test"), "tenant-a", f"unix:{sidecar.socket}", sidecar.token, Status.RUNNING)
    return Call(pool=pool, route=route, request_id=b"r", user=None)


@pytest_asyncio.fixture
async def call(sidecar: Sidecar) -> AsyncIterator[Call]:
    pool = HttpPool()
    yield calls(pool, sidecar)
    await pool.close()


async def executed(call: SidecarCall, **body: Any) -> list[dict[str, Any]]:
    sent = b""

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message.get("body", b"")

    stream = GroupedResponse(send, stays, request_id=b"r", content_type=b"x")
    async with asyncio.timeout(100):
        await code_cells.execute(call, json.dumps(body).encode(), stream)
    return [json.loads(line) for line in sent.splitlines()]


async def test_a_context_that_ends_before_it_gets_its_cell_is_told_as_one_that_had_ended(call: Call) -> None:
    await executed(call, code="x = 1")
    call.ends = "e2b-code:default"
    (told,) = await executed(call, code="x")
    assert (told["name"], "did not run" in told["value"]) == ("ContextRestarting", True)
    assert (await executed(call, code="'x' in globals()"))[1]["text"] == "False"
    named = await code_cells.create(call, b"{}", stays, tasks=Tasks())
    call.ends = f"e2b-code:{named['id']}"
    with pytest.raises(EnvdFailure, match="was not found") as raised:
        await executed(call, code="1", context_id=named["id"])
    assert raised.value.http_status == 404
    call.ends = "e2b-code:default.2"
    await code_cells.restart(call, "default", stays)
    assert (await executed(call, code="6 * 7"))[1]["text"] == "42"


async def test_a_context_whose_end_is_no_longer_known_is_not_found(make: Make) -> None:
    sidecar = await make(claim={}, ops={"result_ttl": 0.1})
    pool = HttpPool()
    try:
        call = calls(pool, sidecar)
        await executed(call, code="x = 1")
        named = await code_cells.create(call, b"{}", stays, tasks=Tasks())
        for name in ("default", named["id"]):
            await code_contexts.kill(call, f"e2b-code:{name}")
            op = f"/v1/ops/e2b-code:{name}"
            await until(lambda op=op: _is_expired(call, op))
            with pytest.raises(EnvdFailure, match="was not found: it ended") as raised:
                await executed(call, code="1", context_id=name)
            assert raised.value.http_status == 404
        await code_cells.restart(call, "default", stays)
        assert (await executed(call, code="6 * 7"))[1]["text"] == "42"
    finally:
        await pool.close()


async def _is_expired(call: Call, target: str) -> bool:
    return (await call.fetch("GET", target)).status == 410


def leaves_at_last() -> Callable[[], Any]:
    """A client that is there while its context starts, and has left before the answer."""
    asked = 0

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return await stays() if asked == 1 else {"type": "http.disconnect"}

    return receive


async def test_a_context_without_its_client_ends(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cells, "_KILL_WITHIN", 60.0)
    with pytest.raises(ClientGone):
        await code_cells.create(call, b"{}", leaves_at_last(), tasks=Tasks())
    assert await code_contexts.running(call) == []


async def test_a_context_of_a_cancelled_request_ends_without_a_wait(
    call: Call, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cells, "_KILL_WITHIN", 60.0)
    tasks = Tasks()
    call.holds = True
    creating = asyncio.create_task(code_cells.create(call, b"{}", stays, tasks=tasks))
    await until(lambda: code_contexts.running(call))
    with stopped(sidecar.pid):  # it does not answer
        creating.cancel()
        done, _ = await asyncio.wait([creating], timeout=40)  # the kill has 60 s
        assert done == {creating}
    assert creating.cancelled()
    assert await tasks.close(timeout=60) == 0
    assert await code_contexts.running(call) == []
