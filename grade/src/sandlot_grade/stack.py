"""Runs a private local stack: a gateway with a temporary state directory, removed afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from sandlot import AsyncClient

from sandlot_grade.errors import GradeError

START_SECONDS = 60.0
STOP_SECONDS = 60.0
IDLE_SECONDS = 300.0  # without a sandbox or request: the stack of a run that was killed (SIGKILL) would stay


class PrivateStack:
    """A private stack; `async with` starts it and ends it with all its sandboxes, `client` talks to it.

    After the block `exit_code` is the gateway's, and `remove` deletes the state directory, which until then can be
    checked for leftovers. `options` are additional arguments of the gateway, which exits `idle` seconds after the last
    sandbox or request.
    """

    def __init__(
        self, *, options: tuple[str, ...] = (), parent: Path | None = None, idle: float = IDLE_SECONDS
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="sandlot-private-", dir=parent))
        self.state_dir = self.directory / "state"
        self.log = self.directory / "gateway.log"
        self.exit_code: int | None = None
        self._options = options
        self._idle = idle
        self._process: asyncio.subprocess.Process | None = None
        self._client: AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        assert self._client is not None, "the stack is not running"
        return self._client

    @property
    def pid(self) -> int:
        assert self._process is not None, "the stack is not running"
        return self._process.pid

    async def __aenter__(self) -> PrivateStack:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            self.remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    def remove(self) -> None:
        """Delete the state directory and the log."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def last_words(self, *, limit: int = 1500) -> str:
        """Return the end of the gateway's log."""
        try:
            return self.log.read_text(errors="replace")[-limit:].strip()
        except OSError:
            return ""

    async def _start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sandlot_gateway", "--backend", "local", "--port", "0"),
                *("--state-dir", str(self.state_dir), "--end-sandboxes-on-exit"),
                *("--exit-when-idle", str(self._idle)),
                *self._options,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # ^C must reach only the run, which then ends its stack in order
            )
        try:
            await asyncio.wait_for(self._ready(), START_SECONDS)
        except TimeoutError as error:
            raise GradeError(
                f"the local stack was not ready within {START_SECONDS:g} s: {self.last_words()}"
            ) from error
        endpoint = json.loads((self.state_dir / "endpoint.json").read_text())
        self._client = AsyncClient(url=endpoint["url"], api_key=endpoint["api_key"])

    async def _ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"sandlot: ready at "):
                return
        await self._process.wait()
        raise GradeError(f"the local stack did not start: {self.last_words()}")

    async def _stop(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self.exit_code = await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self.exit_code = await self._process.wait()
