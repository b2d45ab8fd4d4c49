"""A client of command sessions made of the generated code, and a sandbox to point it at."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from sandlot_gateway.rpc.generated import command_session_pb2 as m
from sandlot_gateway.rpc.generated.command_session_connect import CommandSessionClient

from tests import plain_http
from tests.waiting import until


@dataclass
class Seen:
    """What a stream said."""

    pid: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    pty: bytes = b""
    keepalives: int = 0
    end: m.CommandSessionEvent.EndEvent | None = None

    def add(self, event: m.CommandSessionEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "start":
            self.pid = event.start.pid
        elif kind == "data":
            name = event.data.WhichOneof("output")
            assert name is not None
            setattr(self, name, getattr(self, name) + getattr(event.data, name))
        elif kind == "keepalive":
            self.keepalives += 1
        else:
            self.end = event.end

    async def read(self, stream: AsyncIterator[Any]) -> Seen:
        async for message in stream:
            self.add(message.event)
        return self

    async def begin(self, stream: AsyncIterator[Any]) -> None:
        """Read the start; a stream that nobody reads has not asked for anything yet."""
        self.add((await anext(stream)).event)
        assert self.pid is not None

    async def until(self, stream: AsyncIterator[Any], text: bytes) -> None:
        """Read on until stdout has `text`."""
        while text not in self.stdout:
            self.add((await anext(stream)).event)


@dataclass
class Box:
    """One sandbox, called as a Connect client would."""

    url: str
    api_key: str
    auth: dict[str, str]
    sandbox_id: str
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.token = self.auth["token"]

    @property
    def base(self) -> str:
        return f"{self.auth['gateway_url']}/{self.auth['user_ns']}/{self.auth['job_id']}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self) -> CommandSessionClient:
        return CommandSessionClient(self.base)

    def start(self, request: m.StartRequest, *, timeout: float | None = 60) -> AsyncIterator[m.StartResponse]:
        timeout_ms = None if timeout is None else round(timeout * 1000)
        return self.client().start(request, headers=self.headers, timeout_ms=timeout_ms)

    async def run(self, command: str, *, timeout: float | None = 60, **fields: Any) -> Seen:
        return await Seen().read(self.start(bash(command, **fields), timeout=timeout))

    def attach(self, session: str) -> AsyncIterator[m.ConnectResponse]:
        request = m.ConnectRequest(session=selector(session))
        return self.client().connect(request, headers=self.headers, timeout_ms=60_000)

    async def write(self, session: str, data: bytes, *, repeat: str | None = None) -> None:
        given = m.CommandInput(stdin=data)
        request = m.SendInputRequest(session=selector(session), input=given, input_uuid=repeat)
        await self.client().send_input(request, headers=self.headers, timeout_ms=60_000)

    async def signal(self, session: str, number: Any, *, repeat: str | None = None) -> None:
        request = m.SendSignalRequest(session=selector(session), signal=number, signal_uuid=repeat)
        await self.client().send_signal(request, headers=self.headers, timeout_ms=60_000)

    async def list(self) -> dict[str, m.CommandSessionInfo]:
        answer = await self.client().list(m.ListRequest(), headers=self.headers)
        return {info.session_uuid: info for info in answer.sessions}

    async def running(self, pattern: str) -> int:
        """How many processes of the sandbox have this on their command line."""
        listing = await self.run(
            "for d in /proc/[0-9]*; do tr '\\0' ' ' < $d/cmdline 2>/dev/null; echo; done"
        )
        lines = listing.stdout.decode(errors="replace").splitlines()
        return sum(pattern in line and "for d in" not in line for line in lines)

    async def until_running(self, pattern: str, count: int) -> None:
        async def so_many() -> bool:
            return await self.running(pattern) == count

        await until(so_many, what=f"{count} of {pattern!r} run")

    def delete(self) -> None:
        plain_http.delete(
            f"{self.url}/api/v1/sandbox/{self.sandbox_id}",
            headers={"Authorization": f"Bearer {self.api_key}"},
            timeout=60,
        ).raise_for_status()


def bash(command: str, **fields: Any) -> m.StartRequest:
    """A Start as Prime's clients send it; `fields` go to the request, or to the command where they are its."""
    spec = {name: fields.pop(name) for name in ("envs", "cwd", "user") if name in fields}
    fields.setdefault("stdin", False)
    return m.StartRequest(command=m.CommandSpec(cmd="/bin/bash", args=["-c", command], **spec), **fields)


def selector(session: str) -> m.CommandSessionSelector:
    return m.CommandSessionSelector(session_uuid=session)


def new_session() -> str:
    return str(uuid.uuid4())


def refused(code: Code, match: str = "") -> Any:
    """`with refused(Code.NOT_FOUND)`: the block raises a ConnectError of this code."""
    return pytest.RaisesExc(ConnectError, match=match or None, check=lambda error: error.code is code)
