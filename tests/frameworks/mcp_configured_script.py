"""Connects the official client to servers as its configuration names them, `servers.json`; prints what a command in each said."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


async def said(client: Client) -> str:
    """What a command says in a sandbox that is created without an image."""
    async with client as tools:
        box = (await tools.call_tool("create_sandbox", {})).structured_content
        assert box is not None
        given = {"sandbox_id": box["sandbox_id"], "command": "echo 42"}
        done = (await tools.call_tool("exec", given)).structured_content
        assert done is not None
        await tools.call_tool("delete_sandbox", {"sandbox_id": box["sandbox_id"]})
        return f"{box['image']} {done['stdout']}"


async def of(server: dict[str, Any]) -> str:
    if server.get("type") == "http":
        async with httpx2.AsyncClient(headers=server["headers"], timeout=120) as client:
            return await said(Client(streamable_http_client(server["url"], http_client=client)))
    return await said(Client(stdio_client(StdioServerParameters(**server))))


async def main(servers: list[dict[str, Any]]) -> None:
    print(json.dumps([await of(server) for server in servers]))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
