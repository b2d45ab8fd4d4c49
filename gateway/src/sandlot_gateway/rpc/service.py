"""Implements command sessions: each method as requests to the sandbox's sidecar."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from . import events, failures
from .call import Call, current
from .failures import bad
from .generated import command_session_pb2 as messages
from .generated.command_session_connect import CommandSession
from .requests import identifier, input_bytes, op_spec, session_info, terminal_size

_SIGNALS = {
    messages.SIGNAL_SIGTERM: {"signal": 15, "tree": False},  # the command can end its children itself
    messages.SIGNAL_SIGKILL: {"signal": 9, "tree": True},  # the command cannot
}


class Sessions(CommandSession):
    """Maps a session to an op with the session's uuid as id, a plain command to an op that ends with its stream."""

    async def start(
        self, request: messages.StartRequest, ctx: Any, /
    ) -> AsyncIterator[messages.StartResponse]:
        call = current.get()
        with failures.translated(call.request_gate, call.route.sandbox_id):
            if call.timeout_ms == 0:
                raise ConnectError(
                    Code.DEADLINE_EXCEEDED,
                    "timeout: must be more than 0; leave it out for no limit",
                )
            spec = op_spec(request, timeout_ms=call.timeout_ms)
            if call.command is not None:
                call.command.asked, call.command.op = spec["command"], spec.get("id", "")
            connection = await call.open("POST", "/v1/ops", json=spec, patience=call.patience)
            try:
                stream = call.events(
                    connection, pty="pty" in spec, session="id" in spec, has_input="stdin" in spec
                )
                async with contextlib.aclosing(stream):
                    async for event in stream:
                        yield messages.StartResponse(event=event)
            finally:
                call.close(connection)

    async def connect(
        self, request: messages.ConnectRequest, ctx: Any, /
    ) -> AsyncIterator[messages.ConnectResponse]:
        call = current.get()
        with failures.translated(call.request_gate, call.route.sandbox_id):
            op_id = await _op_id(call, request.session)
            op = await call.json("GET", f"/v1/ops/{op_id}?spec=1")
            # Earlier output is not sent again: the client would take it for new.
            connection = await call.open("GET", f"/v1/ops/{op_id}/stream?resume=1", patience=call.patience)
            try:
                told = op["state"] != "queued"
                if told:
                    yield messages.ConnectResponse(event=events.start(op["pid"]))
                pty = bool((op["spec"] or {}).get("pty"))
                stream = call.events(connection, pty=pty, session=True, has_input=True)
                async with contextlib.aclosing(stream):
                    async for event in stream:
                        if not (told and event.HasField("start")):
                            yield messages.ConnectResponse(event=event)
            finally:
                call.close(connection)

    async def send_input(self, request: messages.SendInputRequest, ctx: Any, /) -> messages.SendInputResponse:
        call = current.get()
        with failures.translated(call.request_gate, call.route.sandbox_id):
            data = input_bytes(request.input)
            repeat = secrets.token_hex(16)
            if request.HasField("input_uuid"):
                repeat = identifier("input_uuid", request.input_uuid)
            await _write(call, await _op_id(call, request.session), data, repeat=repeat)
        return messages.SendInputResponse()

    async def send_signal(
        self, request: messages.SendSignalRequest, ctx: Any, /
    ) -> messages.SendSignalResponse:
        call = current.get()
        with failures.translated(call.request_gate, call.route.sandbox_id):
            asked = _SIGNALS.get(request.signal)
            if asked is None:
                raise bad("signal", "must be SIGNAL_SIGTERM or SIGNAL_SIGKILL")
            if request.HasField("signal_uuid"):
                asked = asked | {"id": identifier("signal_uuid", request.signal_uuid)}
            op_id = await _op_id(call, request.session)
            answer = await call.fetch("POST", f"/v1/ops/{op_id}/signal", json=asked)
            # The process may have ended meanwhile, perhaps because of this very request's first try.
            if answer.status != 200 and answer.json().get("error") != "op_ended":
                raise failures.of_sidecar(answer.status, answer.body)
        return messages.SendSignalResponse()

    async def update(self, request: messages.UpdateRequest, ctx: Any, /) -> messages.UpdateResponse:
        call = current.get()
        with failures.translated(call.request_gate, call.route.sandbox_id):
            if not request.HasField("pty"):
                raise bad("pty", "is required")
            size = terminal_size(request.pty)
            await call.json("POST", f"/v1/ops/{await _op_id(call, request.session)}/resize", json=size)
        return messages.UpdateResponse()

    async def stream_input(
        self, request: AsyncIterator[messages.StreamInputRequest], ctx: Any, /
    ) -> messages.StreamInputResponse:
        call = current.get()
        op_id: str | None = None
        with failures.translated(call.request_gate, call.route.sandbox_id):
            async for message in request:
                kind = message.WhichOneof("event")
                if kind == "start":
                    if op_id is not None:
                        raise bad("start", "must be sent only once")
                    op_id = await _op_id(call, message.start.session)
                elif op_id is None:
                    raise bad("start", "must be the first message")
                elif kind == "data":
                    data = input_bytes(message.data.input)
                    await _write(call, op_id, data, repeat=secrets.token_hex(16))
        return messages.StreamInputResponse()

    async def list(self, request: messages.ListRequest, ctx: Any, /) -> messages.ListResponse:
        call = current.get()
        with failures.translated(call.request_gate, call.route.sandbox_id):
            ops = (await call.json("GET", "/v1/ops?spec=1"))["ops"]
            running = [op for op in ops if op["state"] == "running" and op["spec"] is not None]
            return messages.ListResponse(sessions=[session_info(op) for op in running])


async def _op_id(call: Call, session: messages.CommandSessionSelector) -> str:
    """Return the id of a session's op. Raises ConnectError."""
    kind = session.WhichOneof("selector")
    if kind == "session_uuid":
        return identifier("session.session_uuid", session.session_uuid)
    if kind is None or not session.pid:
        raise bad("session", "set either session_uuid or pid")
    for op in (await call.json("GET", "/v1/ops"))["ops"]:
        if op["state"] == "running" and op["pid"] == session.pid:
            return op["op_id"]
    raise ConnectError(
        Code.NOT_FOUND, f"no session has the pid {session.pid}: its command has ended, or never ran here"
    )


async def _write(call: Call, op_id: str, data: bytes, *, repeat: str) -> None:
    answer = await call.fetch("POST", f"/v1/ops/{op_id}/stdin?id={repeat}", body=data)
    if answer.status != 200:
        raise failures.of_sidecar(answer.status, answer.body)
