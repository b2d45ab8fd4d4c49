"""Serves a terminal over WebSocket: one op with a PTY, output as binary messages, input and resizes back."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from sandlot_contract.frames import END, STDERR, STDOUT
from sandlot_contract.headers import ATTACHED_KEY, OP, OP_KEY

from sandlot_gateway.core.bad_json import NOT_JSON

from .answers import Receive, Refusal, Send, sidecar_lost, token_rejected, unreachable
from .conn import Connection
from .errors import DialError, PoolError, UpstreamError, WireError
from .frames import FrameReader
from .outgoing import request_bytes
from .pool import Answer, HttpPool
from .routes import Route
from .sockets import INTERNAL, reason

_OP = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_PIECE = 256 * 1024  # bytes of one stdin request
_WAITING = 16  # input messages buffered for a command that does not read
CONNECT_TIMEOUT = 30.0  # seconds; WebSocket clients rarely wait longer for the handshake
_UNKNOWN = 1 << 53  # an offset beyond any input: the sidecar answers with the real one


@dataclass(frozen=True, slots=True)
class TerminalRequest:
    """The query parameters of `/sbx/{id}/terminal`."""

    op: str | None  # with `command`: the id of the new op; alone: the op to attach to
    command: str | None
    cols: int
    rows: int
    offset: int  # of the frame stream, for an attach
    user: str | None
    cwd: str | None
    token: str | None  # for browsers, which cannot set headers

    @classmethod
    def parse(cls, query: bytes) -> TerminalRequest:
        """Parse a query string. Raises Refusal (400) with the field's name."""
        fields = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
        op, command = fields.get("op"), fields.get("command")
        if op is not None and (not _OP.match(op) or op in (".", "..")):
            raise _bad("op", "op must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
        if op is None and not command:
            raise _bad("command", "set command to start an op, or op to attach to one")
        return cls(
            op=op,
            command=command or None,
            cols=_number(fields, "cols", default=80, low=1, high=10_000),
            rows=_number(fields, "rows", default=24, low=1, high=10_000),
            offset=_number(fields, "offset", default=0, low=0, high=_UNKNOWN),
            user=fields.get("user"),
            cwd=fields.get("cwd"),
            token=fields.get("token"),
        )


class Terminal:
    """An open terminal: `begin` starts or attaches the op, `run` relays bytes until it ends or the client leaves."""

    def __init__(self, *, pool: HttpPool, route: Route, request: TerminalRequest) -> None:
        self._pool = pool
        self._route = route
        self._request = request
        self.op = request.op or f"t-{secrets.token_hex(8)}"
        self._connection: Connection | None = None
        self._offset = 0  # of the input
        self._input: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)

    async def begin(self) -> None:
        """Start or attach the op. Raises Refusal with the sidecar's answer if it rejects that."""
        asked = self._request
        try:
            connection = self._connection = await self._pool.acquire(
                self._route.address, known_alive=True, timeout=CONNECT_TIMEOUT
            )
            if asked.command is None:
                target = f"/v1/ops/{self.op}/stream?offset={asked.offset}"
                data = self._request_bytes("GET", target)
            else:
                spec: dict[str, Any] = {
                    "id": self.op,
                    "command": asked.command,
                    "stdin": True,
                    "pty": {"cols": asked.cols, "rows": asked.rows},
                }
                spec |= {key: value for key, value in (("user", asked.user), ("cwd", asked.cwd)) if value}
                data = self._request_bytes(
                    "POST", f"/v1/ops?offset={asked.offset}", msgspec.json.encode(spec)
                )
            connection.begin(data)
            response = await connection.head()
            if response.status != 200:
                body = b""
                while len(body) < 65536 and (piece := await connection.read()):
                    body += piece
                raise _as_refusal(Answer(response.status, response.headers, body))
        except DialError as error:
            raise unreachable(error) from error
        except UpstreamError as error:
            raise sidecar_lost(error) from error
        attached = (ATTACHED_KEY, b"1") in response.headers or asked.command is None
        self._offset = _UNKNOWN if attached else 0

    async def run(self, receive: Receive, send: Send) -> None:
        """Relay until the op ends (its result is the last text message), the client leaves or the sidecar is lost."""
        await send(
            {
                "type": "websocket.accept",
                "headers": [(OP_KEY, self.op.encode())],
                "subprotocol": None,
            }
        )
        loop = asyncio.get_running_loop()
        output = loop.create_task(self._carry_output(send))
        tasks = {
            output,
            loop.create_task(self._carry_messages(receive)),
            loop.create_task(self._carry_input()),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                if isinstance(error, (PoolError, WireError)):
                    await send({"type": "websocket.close", "code": INTERNAL, "reason": reason(str(error))})
                    return
                raise error

    def close(self) -> None:
        """Close the connection, which detaches from the op."""
        if self._connection is not None:
            self._pool.release(self._connection, reusable=False)
            self._connection = None

    async def _carry_output(self, send: Send) -> None:
        assert self._connection is not None
        reader = FrameReader()
        await send({"type": "websocket.send", "text": _json({"op_id": self.op})})
        while data := await self._connection.read():
            # A command may write single bytes: a message for each would cost the loop a hundred times as much.
            output, end = bytearray(), None
            for kind, payload in reader.feed(data):
                if kind in (STDOUT, STDERR):
                    output += payload
                elif kind == END:
                    end = payload.decode("utf-8", "replace")
                    break
            if output:
                await send({"type": "websocket.send", "bytes": bytes(output)})
            if end is not None:
                await send({"type": "websocket.send", "text": f'{{"exit":{end}}}'})
                await send({"type": "websocket.close", "code": 1000, "reason": "exit"})
                return
        raise UpstreamError("the op's stream closed before its end frame")

    async def _carry_messages(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            if message["type"] != "websocket.receive":
                continue
            data = message.get("bytes")
            if data is None:
                await self._control(message.get("text") or "")
                continue
            for at in range(0, len(data), _PIECE):
                await self._input.put(data[at : at + _PIECE])

    async def _carry_input(self) -> None:
        while True:
            data = await self._input.get()
            while not await self._send_input(data):
                pass

    async def _send_input(self, data: bytes) -> bool:
        """Send input; return False if it must be sent again at the current offset."""
        answer = await self._fetch(f"/stdin?offset={self._offset}", data)
        if answer.status == 408:
            return False  # the command does not read; the sidecar drops from the repeat what it has already
        if answer.status == 409 and self._offset == _UNKNOWN:
            self._offset = int(answer.json()["offset"])
            return False
        if answer.status == 200:
            self._offset += len(data)
        # Any other status: the op has ended or takes no input, which its output reports.
        return True

    async def _control(self, text: str) -> None:
        """Handle `{"resize": {"cols", "rows"}}` and `{"signal": …}`; ignore others, for later versions."""
        try:
            message = msgspec.json.decode(text)
        except NOT_JSON:
            return
        if not isinstance(message, dict):
            return
        size = message.get("resize")
        if isinstance(size, dict):
            await self._fetch("/resize", msgspec.json.encode(size))
        if "signal" in message:
            await self._fetch("/signal", msgspec.json.encode({"signal": message["signal"], "tree": True}))

    async def _fetch(self, path: str, body: bytes) -> Answer:
        return await self._pool.fetch(
            self._route.address,
            "POST",
            f"/v1/ops/{self.op}{path}",
            headers=[("authorization", f"Bearer {self._route.token}")],
            body=body,
            timeout=60.0,
        )

    def _request_bytes(self, method: str, target: str, body: bytes = b"") -> bytes:
        headers = [("authorization", f"Bearer {self._route.token}"), (OP, self.op)]
        return request_bytes(method, target, host=b"sidecar", headers=headers, body=body)


def _as_refusal(answer: Answer) -> Refusal:
    if answer.status == 401:
        return token_rejected()
    try:
        document = answer.json()
    except UpstreamError:
        document = None
    if not isinstance(document, dict):
        document = {}
    fields = {key: value for key, value in document.items() if key not in ("error", "message")}
    code, message = str(document.get("error", "sidecar_error")), str(document.get("message", ""))
    return Refusal(answer.status if answer.status >= 400 else 502, code, message, **fields)


def _number(fields: dict[str, str], name: str, *, default: int, low: int, high: int) -> int:
    text = fields.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 16 or not low <= int(text) <= high:
        raise _bad(name, f"{name} must be a number from {low} to {high}")
    return int(text)


def _bad(field: str, message: str) -> Refusal:
    return Refusal(400, "bad_request", message, field=field)


def _json(document: dict[str, Any]) -> str:
    return msgspec.json.encode(document).decode()
