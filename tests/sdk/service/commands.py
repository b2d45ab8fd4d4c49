"""Commands of all sandboxes: the buffered exec, and ops with their streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from typing import Any

from sandlot._protocol.frames import encode

from tests.sdk.service.answers import raw
from tests.sdk.service.op import Op
from tests.sdk.service.requests import Answer, Call
from tests.sdk.service.state import State


class Commands:
    def __init__(self, state: State) -> None:
        self._state = state
        self.runs: set[asyncio.Task[object]] = set()

    def _spawn(self, coroutine: Awaitable[object]) -> None:
        task = asyncio.ensure_future(coroutine)
        self.runs.add(task)
        task.add_done_callback(self.runs.discard)

    def _start(self, spec: dict[str, Any], name: str) -> Op:
        op = self._state.ops[spec["id"]] = Op(spec, env=self._state.sandboxes[name]["environmentVars"])  # type: ignore[arg-type]
        if spec.get("user") == "nobody-here":
            op.output["stderr"] = b"sandlot: user: no such user\n"
            op.add(b"e", op.output["stderr"])
            op.end("start_failed", code=126, message="user: no such user")
            op.started.set()
        elif self._state.lost_verdict:
            op.end(self._state.lost_verdict, message="the machine went away")
            op.started.set()
        else:
            self._spawn(op.run(self._state.root))
        return op

    async def exec(self, call: Call, sandbox: str) -> Answer:
        name, document = call.headers["x-sandlot-op"], call.document
        op = self._state.ops.get(name)
        if op is None:
            spec = {
                "id": name,
                "command": document["command"],
                "env": document.get("env"),
                "cwd": document.get("working_dir"),
                "shell": document.get("shell"),
                "timeout": document.get("timeout"),
                "user": document.get("user"),
                "input": document.get("stdin"),
                "stdin": "stdin" in document,
            }
            op = self._start(spec, sandbox)
        end = await op.ended()
        answer = {key: value.decode("utf-8", "replace") for key, value in op.output.items()} | end
        return (408 if end["verdict"] == "timeout" else 200), answer, {}

    async def op(self, call: Call, sandbox: str, parts: list[str]) -> Answer:
        query, offset = call.query, int(call.query.get("offset", 0))
        if not parts:
            spec = call.document
            op = self._state.ops.get(spec["id"])
            if op is not None and op.spec != spec:
                return 409, {"error": "op_conflict", "message": "another command"}, {}
            return await self._stream(op or self._start(spec, sandbox), offset, call)
        op = self._state.ops.get(parts[0])
        if op is None:
            return 404, {"error": "no_such_op", "message": "no such op"}, {}
        action = parts[1] if len(parts) > 1 else ""
        if action == "stream":
            return await self._stream(op, offset, call)
        if action == "output":
            raw(call.writer, 200, op.output[query["stream"]], {})
            return None
        if action == "stdin":
            await op.started.wait()
            assert op.process is not None
            assert op.process.stdin is not None
            if offset > op.stdin_taken:
                return 409, {"error": "stdin_gap", "offset": op.stdin_taken}, {}
            fresh = call.body[op.stdin_taken - offset :]
            op.stdin_taken += len(fresh)
            op.process.stdin.write(fresh)
            await op.process.stdin.drain()
            if query.get("eof"):
                op.process.stdin.close()
            return 200, {"offset": op.stdin_taken}, {}
        if action == "signal":
            assert op.process is not None
            number = call.document["signal"]
            os.killpg(op.process.pid, {"TERM": 15, "INT": 2}.get(number, number))
            return 200, {}, {}
        if action == "detach":
            op.detached = True
            return 200, {}, {}
        if call.method == "DELETE":
            await op.started.wait()
            op.killed = True
            op.kill()
            return 200, await op.ended(), {}
        if "wait" in query:
            await op.ended()
        return 200, op.document or {"op_id": parts[0], "state": "running", "detached": op.detached}, {}

    async def _stream(self, op: Op, offset: int, call: Call) -> None:
        writer, fault = call.writer, call.fault
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.sandlot.frames\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        limit = fault.cut if fault is not None else None
        sent = 0
        while True:
            data = op.frames[offset:]
            if limit is not None:
                data = data[: limit - sent]
            if data:
                offset += len(data)
                sent += len(data)
                data = encode(b"k", b"") + data
                writer.write(b"%x\r\n%b\r\n" % (len(data), data))
                await writer.drain()
            if limit is not None and sent >= limit:
                if fault.stop:
                    writer.write(b"0\r\n\r\n")
                    await writer.drain()
                return
            if op.document is not None and offset >= len(op.frames):
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return
            await op.changed.wait()
