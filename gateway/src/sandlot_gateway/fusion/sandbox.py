"""Files and commands of one sandbox, by its sidecar's API (docs/sidecar-contract.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
from sandlot_contract.frames import END, STDERR, STDOUT
from sandlot_contract.verdicts import LOST, CommandVerdict

from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.data.errors import WireError
from sandlot_gateway.data.frames import FrameReader
from sandlot_gateway.data.pool import Answer, HttpPool, PoolError
from sandlot_gateway.data.routes import Route
from sandlot_gateway.data.sidecar_requests import json_object

_CALL_TIMEOUT = 10.0  # seconds for a call that runs no command
_AFTER_TIMEOUT = 5.0  # seconds in which a command that reached its limit is killed and answered
_OUTPUT_LIMIT = 4 << 20  # bytes of both streams; the gateway holds them for each request that runs
_MOST_FETCHED = 32 << 20  # bytes of one file
# Answers of the file routes that the request's own paths and bytes cause.
_FILE_ERRORS = frozenset((400, 403, 404, 409, 413, 416, 507))
# Not the code's ends: someone signalled the command by the API, or the gateway's connection broke.
_NOT_RUN = LOST | {CommandVerdict.KILLED, CommandVerdict.CLIENT_GONE}


class Lost(Exception):
    """Raised when the infrastructure failed, so that the request may run in another sandbox.

    `ran`: something of it may have run here.
    """

    def __init__(self, message: str, *, ran: bool = True) -> None:
        super().__init__(message)
        self.ran = ran


class BadInput(Exception):
    """Raised for something of the request that no sandbox can do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended by itself, by its code or at a limit."""

    verdict: str
    exit_code: int | None
    signal: int | None
    seconds: float
    stdout: bytes
    stderr: bytes

    @property
    def succeeded(self) -> bool:
        return self.verdict == CommandVerdict.EXITED and self.exit_code == 0


class _Usage(msgspec.Struct):
    wall: float = 0.0


class _Op(msgspec.Struct):
    verdict: str
    exit_code: int | None = None
    signal: int | None = None
    message: str | None = None
    usage: _Usage = msgspec.field(default_factory=_Usage)


class SandboxClient:
    """Calls one sandbox. Every method raises Lost and BadInput."""

    def __init__(self, pool: HttpPool, route: Route) -> None:
        self._pool = pool
        self._route = route

    async def write(self, path: str, content: bytes) -> None:
        """Write a file, with the directories above it."""
        query = urlencode({"path": path, "parents": 1})
        answer = await self._call("PUT", f"/v1/files?{query}", body=content)
        if answer.status != 200:
            raise _failure(answer, f"cannot write the file {path!r}")

    async def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is no regular one."""
        stat = await self._call("GET", f"/v1/files/stat?{urlencode({'path': path, 'follow': 1})}")
        if stat.status in _FILE_ERRORS:
            return None
        if stat.status != 200:
            raise _failure(stat, f"cannot look at the file {path!r}")
        about = json_object(stat.body)
        size = about.get("size")
        if about.get("type") != "file" or about.get("other") or not isinstance(size, int):
            return None
        if size > _MOST_FETCHED:
            text = f"fetch_files: {path!r} has {size} bytes, more than {_MOST_FETCHED}: fetch a smaller one"
            raise BadInput(text)
        if size == 0:
            return b""
        # A range, since a process that the code left behind may write on.
        wanted = [("range", f"bytes=0-{size - 1}")]
        answer = await self._call("GET", f"/v1/files?{urlencode({'path': path})}", headers=wanted)
        if answer.status in _FILE_ERRORS:
            return None
        if answer.status not in (200, 206):
            raise _failure(answer, f"cannot read the file {path!r}")
        return answer.body

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        timeout: float,
        memory: int | None,
        output_limit: int = _OUTPUT_LIMIT,
    ) -> Finished:
        """Run a shell command to its end. It is killed if this call is cancelled."""
        body: dict[str, Any] = {
            "command": command,
            "cwd": cwd,
            "timeout": max(timeout, 0.001),
            "output_limit": output_limit,
            "quiet": True,
        }
        if memory is not None:
            body["memory"] = memory
        answer = await self._call(
            "POST",
            "/v1/ops",
            headers=[("content-type", "application/json")],
            body=msgspec.json.encode(body),
            timeout=timeout + _AFTER_TIMEOUT,
        )
        if answer.status != 200:
            raise _failure(answer, "cannot run the command")
        return _finished(answer)

    async def end_verdict(self) -> str | None:
        """Return why the sandbox has ended, if its sidecar still knows."""
        try:
            state = json_object((await self._call("GET", "/v1/state")).body)
        except Lost:
            return None
        verdict = state.get("verdict")
        return verdict if isinstance(verdict, str) else None

    async def _call(
        self,
        method: str,
        target: str,
        *,
        headers: list[tuple[str, str]] | None = None,
        body: bytes = b"",
        timeout: float = _CALL_TIMEOUT,
    ) -> Answer:
        sent: list[tuple[str | bytes, str | bytes]] = [("authorization", f"Bearer {self._route.token}")]
        sent += headers or ()
        try:
            return await self._pool.fetch(
                self._route.address, method, target, headers=sent, body=body, timeout=timeout
            )
        except PoolError as error:
            raise Lost(f"the sandbox did not answer: {error}", ran=error.may_have_run) from error


def _finished(answer: Answer) -> Finished:
    streams = {STDOUT: bytearray(), STDERR: bytearray()}
    op: _Op | None = None
    try:
        for kind, payload in FrameReader().feed(answer.body):
            if kind in streams:
                streams[kind] += payload
            elif kind == END:
                op = msgspec.json.decode(payload, type=_Op)
    except (WireError, *NOT_JSON) as error:
        raise Lost(f"the sandbox sent no valid end of the command: {error}") from error
    if op is None:
        raise Lost("the sandbox sent no end of the command")
    if op.verdict in _NOT_RUN:
        raise Lost(f"the command was lost: {op.verdict}, {op.message or 'without a message'}")
    if op.verdict == CommandVerdict.START_FAILED:
        raise BadInput(f"the command could not start: {op.message}")
    return Finished(
        verdict=op.verdict,
        exit_code=op.exit_code,
        signal=op.signal,
        seconds=op.usage.wall,
        stdout=bytes(streams[STDOUT]),
        stderr=bytes(streams[STDERR]),
    )


def _failure(answer: Answer, what: str) -> Exception:
    document = json_object(answer.body)
    why = document.get("message") or document.get("error") or f"status {answer.status}"
    of_request = answer.status in _FILE_ERRORS and document.get("error") != "not_claimed"
    return (BadInput if of_request else Lost)(f"{what}: {why}")
