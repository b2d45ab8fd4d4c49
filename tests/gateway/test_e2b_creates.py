"""Creates over E2B's wire whose client leaves late, or that arrive while the gateway shuts down."""

from __future__ import annotations

import asyncio
import json

import pytest
from sandlot_gateway.e2b import control

from tests.gateway.conftest import KEY, running
from tests.waiting import until

OPTIONS = {"e2b": True, "e2b_templates": ["base=host"]}


async def test_a_client_that_leaves_in_the_second_wait_leaves_no_sandbox(
    state_dir, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HOLD", 0.0)  # so that the second wait begins at once
    async with running(state_dir, machine, **OPTIONS) as box:
        machine.hold_ready = asyncio.Event()
        host, port = box.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        data = json.dumps({"templateID": "base"}).encode()
        head = f"POST /e2b/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await until(lambda: box.gateway.directory.total_live == 1)
        writer.close()
        await writer.wait_closed()
        machine.hold_ready.set()
        await until(lambda: box.gateway.directory.total_live == 0)
        await until(lambda: machine.claimed() == [])


async def test_a_gateway_that_shuts_down_says_so_in_their_form(state_dir, machine) -> None:
    async with running(state_dir, machine, **OPTIONS) as box:
        await box.gateway.data.drain(timeout=0)
        answer = await box.client.get("/e2b/sandboxes", headers={"X-API-Key": KEY})
        assert (answer.status_code, answer.json()["code"]) == (503, 503)
        assert "shutting down" in answer.json()["message"]
        assert {"retry-after", "x-request-id"} <= answer.headers.keys()
        assert answer.headers["connection"] == "close"
