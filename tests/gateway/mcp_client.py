"""A client of /mcp by plain HTTP: its requests, its sessions and its calls of tools."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.gateway.conftest import Running

ACCEPT = {"accept": "application/json, text/event-stream"}


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
