"""Uses Sandlot's tools by the official client, `MODE[,MODE] STDIO_COMMAND…`; prints what each session saw as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

URL, KEY = os.environ["SANDLOT_URL"], os.environ["SANDLOT_API_KEY"]


async def session(client: Client) -> dict[str, Any]:
    """What one session sees. The client checks each structured result by the tool's schema."""
    async with client as tools:
        called: set[str] = set()

        async def call_tool(name: str, given: dict[str, Any]) -> Any:
            called.add(name)
            return await tools.call_tool(name, given)

        async def get(name: str, **given: Any) -> dict[str, Any]:
            result = await call_tool(name, given)
            assert not result.is_error, result
            assert result.structured_content is not None
            return result.structured_content

        listed = (await tools.list_tools()).tools
        box = (await get("create_sandbox", image="host"))["sandbox_id"]
        failed = await get("exec", sandbox_id=box, command="echo no >&2; exit 3")
        started = await get("start_command", sandbox_id=box, command="read a; echo got $a", stdin=True)
        op = {"sandbox_id": box, "op_id": started["op_id"]}
        await get("write_stdin", **op, text="it\n", eof=True)
        read = await get("read_output", **op, wait_seconds=60, wait_for="end")
        trapped = await get(
            "start_command",
            sandbox_id=box,
            command="trap 'exit 7' TERM; echo set; while :; do sleep 0.05; done",
        )
        asked = {"sandbox_id": box, "op_id": trapped["op_id"]}
        await get("read_output", **asked, wait_seconds=60)
        await get("kill_command", **asked, signal="TERM")
        ended = [(await get("read_output", **asked, wait_seconds=60, wait_for="end"))["exit_code"]]
        endless = await get("start_command", sandbox_id=box, command="sleep 600")
        asked = {"sandbox_id": box, "op_id": endless["op_id"]}
        await get("kill_command", **asked)
        ended.append((await get("read_output", **asked, wait_seconds=60, wait_for="end"))["verdict"])
        await get("write_file", sandbox_id=box, path="/tmp/a/b.txt", content="one\ntwo €\n")
        file = await get("read_file", sandbox_id=box, path="/tmp/a/b.txt")
        names = await get("list_files", sandbox_id=box, path="/tmp/a")
        found = await get("search_files", sandbox_id=box, path="/tmp/a", pattern="two")
        await get("make_directory", sandbox_id=box, path="/tmp/c")
        await get("move_path", sandbox_id=box, source="/tmp/a/b.txt", target="/tmp/c/b.txt")
        exposed = await get("expose_port", sandbox_id=box, port=8000)
        checkpoint = (await get("create_checkpoint", sandbox_id=box))["checkpoint_id"]
        second = (await get("create_sandbox", checkpoint=checkpoint))["sandbox_id"]
        restored = await get("read_file", sandbox_id=second, path="/tmp/c/b.txt")
        await get("delete_checkpoint", checkpoint_id=checkpoint)
        await get("remove_path", sandbox_id=second, path="/tmp/c", recursive=True)
        missing = await call_tool("read_file", {"sandbox_id": second, "path": "/tmp/c/b.txt"})
        mine = await get("list_sandboxes")
        state = await get("get_sandbox", sandbox_id=second)

        long = {"sandbox_id": box, "op_id": "long"}
        call = asyncio.create_task(call_tool("exec", {**long, "command": "echo begun; sleep 600"}))

        async def begun() -> bool:
            seen = await call_tool("read_output", long)
            return not seen.is_error and (seen.structured_content or {})["stdout"] == "begun\n"

        while not await begun():
            pass
        call.cancel()
        killed = await get("read_output", **long, wait_seconds=60, wait_for="end")

        await get("delete_sandbox", sandbox_id=box)
        gone = await call_tool("exec", {"sandbox_id": box, "command": "true"})
        return {
            "version": tools.protocol_version,
            "tools": len(listed),
            "uncalled": sorted({tool.name for tool in listed} - called),
            "described": all(tool.description and tool.output_schema for tool in listed),
            "failed": [failed["verdict"], failed["exit_code"], failed["stderr"]],
            "read": [read["stdout"], read["verdict"], read["complete"]],
            "file": [file["content"], file["size"], restored["content"] == file["content"]],
            "names": [entry["name"] for entry in names["entries"]],
            "found": [[match["line"], match["text"]] for match in found["matches"]],
            "exposed": exposed["address"].startswith(f"{URL}/expose/"),
            "missing": [missing.is_error, missing.content[0].text.partition(":")[0]],
            "mine": sorted(one["sandbox_id"] for one in mine["sandboxes"]) == sorted([box, second]),
            "cancelled": killed["verdict"],
            "ended": ended,
            "state": [state["sandbox_id"] == second, state["status"], state["verdict"]],
            "gone": [gone.is_error, gone.content[0].text.partition(" ")[0]],
            "left": second,
        }


async def over_stdio(mode: str) -> dict[str, Any]:
    environment = {"SANDLOT_URL": URL, "SANDLOT_API_KEY": KEY}
    command = StdioServerParameters(command=sys.argv[2], args=sys.argv[3:], env=environment)
    return await session(Client(stdio_client(command), mode=mode))


async def over_http(mode: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=120) as client:
        return await session(Client(streamable_http_client(f"{URL}/mcp", http_client=client), mode=mode))


async def main() -> None:
    seen = {
        f"{by.__name__} {mode}": await by(mode)
        for by in (over_stdio, over_http)
        for mode in sys.argv[1].split(",")
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main())
