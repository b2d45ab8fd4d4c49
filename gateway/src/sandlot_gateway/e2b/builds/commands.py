"""Runs commands and writes files in the sandbox of a build or of a template, for the gateway itself."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandlot_contract.frames import END, STDERR, STDOUT
from sandlot_contract.ids import SandboxId

from sandlot_gateway.data.errors import UpstreamError
from sandlot_gateway.data.frames import FrameReader
from sandlot_gateway.data.pool import HttpPool
from sandlot_gateway.data.request_gate import RequestGate

from .. import events
from ..access import Caller
from ..entrance import Entrance
from ..failures import translated
from ..sidecar_call import SidecarCall
from ..uploads import write_file

_OUTPUT_LIMIT = 1 << 20  # bytes that the sidecar passes on


class Commands:
    """Calls one sandbox. Methods raise EnvdFailure."""

    def __init__(self, *, pool: HttpPool, gate: RequestGate, sandbox_id: SandboxId, tenant: str) -> None:
        self._gate = gate
        self._entrance = Entrance(gate=gate, pool=pool)
        self._sandbox_id = sandbox_id
        self._tenant = tenant

    async def run(
        self,
        command: str | list[str],
        *,
        timeout: float,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        output: Callable[[int, bytes], None] = lambda kind, data: None,
    ) -> dict[str, Any]:
        """Run a command to its end, and return how it ended; `output` gets each piece. It dies with this call."""
        spec: dict[str, Any] = {"command": command, "timeout": timeout, "output_limit": _OUTPUT_LIMIT}
        spec |= {
            name: value for name, value in (("env", env), ("cwd", cwd), ("user", user)) if value is not None
        }
        async with self._entered() as call:
            connection = await call.open("POST", "/v1/ops", json=spec)
            reader, last = FrameReader(), b""
            try:
                while data := await connection.read():
                    for kind, payload in reader.feed(data):
                        if kind == END:
                            last = payload
                        elif kind in (STDOUT, STDERR):
                            output(kind, payload)
            finally:
                call.pool.release(connection)
            if not last:
                raise UpstreamError("the op's stream closed before its end frame")
            return events.document(last)

    async def text(self, command: str | list[str], **more: Any) -> tuple[dict[str, Any], str]:
        """Run a command; return how it ended, and its output on stdout."""
        pieces: list[bytes] = []

        def keep(kind: int, data: bytes) -> None:
            if kind == STDOUT:
                pieces.append(data)

        op = await self.run(command, output=keep, **more)
        return op, b"".join(pieces).decode("utf-8", "replace")

    async def write(self, path: str, content: AsyncIterator[bytes]) -> None:
        async with self._entered() as call:
            await write_file(call, path, content)

    async def make_directory(self, path: str, *, owner: str | None) -> None:
        name, _, group = (owner or "").partition(":")
        fields = {key: value for key, value in (("owner", name), ("group", group)) if value}
        async with self._entered() as call:
            await call.json("POST", "/v1/files/mkdir", json=call.file_body(path=path, parents=True, **fields))

    @asynccontextmanager
    async def _entered(self) -> AsyncIterator[SidecarCall]:
        """Take a place among the calls to this sandbox, as those of clients do."""
        caller = Caller(self._sandbox_id, self._tenant)
        request_id = f"build-{secrets.token_hex(8)}".encode()
        with translated(self._gate, self._sandbox_id):
            async with self._entrance.entered(caller, request_id, receive=None) as call:
                yield call
