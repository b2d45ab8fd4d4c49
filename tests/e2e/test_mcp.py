"""`sandlot mcp` with real sandboxes: ends of commands and of sandboxes as a client of MCP sees them, over pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sandlot import Client, Sandbox

from tests import plain_http
from tests.complaints import WARNINGS_SHOWN
from tests.e2e import processes
from tests.stack import Stack, private_stack
from tests.waiting import wait_until


@pytest.fixture
def stack(empty_stack: Stack) -> Stack:
    return empty_stack


class Peer:
    """A client that writes lines and reads lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._last = 0
        self._early: dict[int, dict[str, Any]] = {}

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        self.process.stdin.flush()

    def begin(self, method: str, **params: Any) -> int:
        self._last += 1
        self.send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def answer(self, identity: int | None) -> dict[str, Any]:
        assert self.process.stdout is not None
        while identity not in self._early:
            message = json.loads(self.process.stdout.readline())
            self._early[message["id"]] = message
        return self._early.pop(identity)

    def call(self, name: str, **given: Any) -> dict[str, Any]:
        """What `tools/call` answers."""
        return self.answer(self.begin("tools/call", name=name, arguments=given))["result"]

    def get(self, name: str, **given: Any) -> dict[str, Any]:
        """What a tool that succeeds gives."""
        result = self.call(name, **given)
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]


@contextmanager
def peer(stack: Stack, *options: str) -> Iterator[Peer]:
    environment = {"SANDLOT_URL": stack.url, "SANDLOT_API_KEY": stack.api_key, **WARNINGS_SHOWN}
    with subprocess.Popen(
        [sys.executable, "-m", "sandlot", "mcp", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            yield Peer(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(timeout=60) == 0


def test_ends_of_commands_are_results_and_a_lost_sandbox_is_an_error(stack: Stack, client: Client) -> None:
    with peer(stack) as tools:
        box = tools.get("create_sandbox", image="host", memory="256MiB")["sandbox_id"]
        ends = {
            "exit 3": ("exited", 3),
            "kill -9 $$": ("signaled", 137),
            "sleep 100": ("timeout", 137),
            "python3 -c 'bytearray(1 << 30)'": ("oom", 137),
        }
        for command, end in ends.items():
            given = {"timeout_seconds": 1} if command == "sleep 100" else {}
            result = tools.get("exec", sandbox_id=box, command=command, **given)
            assert (result["verdict"], result["exit_code"]) == end, result

        output = tools.get("exec", sandbox_id=box, command="seq 100000; echo no >&2", max_bytes=1000)
        assert output["stdout"].startswith("1\n2\n")
        assert output["stdout"].endswith("\n100000\n")
        assert len(output["stdout"]) < 1200
        assert (output["stdout_truncated"], output["stdout_bytes"]) == (True, 588895)
        assert (output["stderr"], output["stderr_truncated"]) == ("no\n", False)
        part = tools.get("read_output", sandbox_id=box, op_id=output["op_id"], stdout_offset=588888)
        assert (part["stdout"], part["complete"]) == ("100000\n", True)

        # Three bytes each, cut in the middle of one.
        euros = tools.get("exec", sandbox_id=box, command="printf '€%.0s' $(seq 200)", max_bytes=256)
        assert "\ufffd" not in euros["stdout"].split("\n[")[0]
        first = tools.get("read_output", sandbox_id=box, op_id=euros["op_id"], max_bytes=256)
        assert (first["stdout"], first["next_stdout_offset"]) == ("€" * 85, 255)

        tools.get(
            "exec",
            sandbox_id=box,
            command="yes :1: | head -100000 > /tmp/many; printf x%.0s $(seq 300000) > /tmp/long",
        )
        for pattern, limit, count in ((":1:", 7, 7), (":1:", 1000, 1000), ("x", 1000, 1)):
            given = {"sandbox_id": box, "path": "/tmp", "pattern": pattern, "limit": limit}
            found = tools.get("search_files", **given)
            assert (len(found["matches"]), found["truncated"]) == (count, True), found["matches"][:3]

        (sidecar,) = processes.sidecars(stack)
        os.kill(sidecar, signal.SIGKILL)
        lost = tools.call("exec", sandbox_id=box, command="echo there")
        about = lost["_meta"]["sandlot/error"]
        assert (lost["isError"], about["kind"], about["verdict"]) == (True, "sandbox_lost", "sidecar_lost")
        assert about["infrastructure"]
        assert "create_sandbox" in lost["content"][0]["text"]


def test_a_cancelled_call_ends_its_command_and_the_session_its_sandboxes(
    stack: Stack, client: Client
) -> None:
    kept = Sandbox.create("host", client=client)
    with peer(stack) as tools:
        box = tools.get("create_sandbox", image="host")["sandbox_id"]
        command = {"sandbox_id": box, "command": "echo begun; sleep 600", "op_id": "long"}
        identity = tools.begin("tools/call", name="exec", arguments=command)

        def begun() -> bool:
            seen = tools.call("read_output", sandbox_id=box, op_id="long")
            return not seen["isError"] and seen["structuredContent"]["stdout"] == "begun\n"

        wait_until(begun)
        tools.send("not json")
        assert tools.answer(None)["error"]["code"] == -32700
        cancel = {"requestId": identity, "reason": "enough"}
        tools.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        end = tools.get("read_output", sandbox_id=box, op_id="long", wait_seconds=60, wait_for="end")
        assert end["verdict"] == "killed"

        write = tools.get("start_command", sandbox_id=box, command="read a; echo got $a; read b", stdin=True)
        tools.get("write_stdin", sandbox_id=box, op_id=write["op_id"], text="one\n")
        heard = tools.get("read_output", sandbox_id=box, op_id=write["op_id"], wait_seconds=60)
        assert (heard["stdout"], heard["state"]) == ("got one\n", "running")
        tools.begin("tools/call", name="exec", arguments={"sandbox_id": box, "command": "sleep 600"})
    assert Sandbox.connect(box, client=client).info.ended
    assert not kept.refresh().ended
    with peer(stack, "--keep") as tools:
        box = tools.get("create_sandbox", image="host")["sandbox_id"]
    Sandbox.connect(box, client=client).delete()
    kept.delete()


def test_a_gateway_behind_another_url_reaches_itself() -> None:
    with private_stack("--mcp", "--public-url", "https://sandlot.example/base") as stack:
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        with plain_http.client(base_url=stack.url, headers=headers, timeout=100) as client:

            def get(name: str, **given: Any) -> dict[str, Any]:
                params = {"name": name, "arguments": given}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                return client.post("/mcp", json=message).json()["result"]["structuredContent"]

            box = get("create_sandbox", image="host")["sandbox_id"]
            assert get("exec", sandbox_id=box, command="echo here")["stdout"] == "here\n"
            address = get("expose_port", sandbox_id=box, port=8000)["address"]
            assert address.startswith("https://sandlot.example/base/expose/")


def test_a_command_in_flight_gets_its_result_while_the_gateway_drains() -> None:
    with private_stack("--mcp", "--drain", "60") as stack, ThreadPoolExecutor() as threads:
        with Client(url=stack.url, api_key=stack.api_key) as client:
            box = Sandbox.create(client=client)
            arguments = {"sandbox_id": box.id, "command": "touch begun; sleep 1; echo done"}
            calling = threads.submit(_posted, stack, "exec", arguments)
            wait_until(lambda: box.files.exists("begun"))
        assert stack.process is not None
        stack.process.send_signal(signal.SIGTERM)
        result = calling.result()
        assert (result["isError"], result["structuredContent"]["stdout"]) == (False, "done\n"), result


def _posted(stack: Stack, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What `tools/call` answers over HTTP."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    with plain_http.client(base_url=stack.url, headers=headers, timeout=120) as client:
        return client.post("/mcp", json=message).json()["result"]
