"""A Python context: a process in the sandbox that runs cells of code in one namespace, across lost connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from sandlot._async.cell_reader import AsyncCellReader
from sandlot._async.plane import AsyncPlane
from sandlot._async.stream import AsyncOpStream
from sandlot._protocol import calls, cells
from sandlot._protocol.answers import error_code, error_for
from sandlot._protocol.cells import Cells, Listeners
from sandlot._protocol.context_end import CLOSED, ContextEnd
from sandlot._protocol.messages import with_query
from sandlot._tasks_async import Lock, acquire, now, shielded
from sandlot.cells import CellResult, RichOutput
from sandlot.errors import (
    Conflict,
    NotFound,
    OpExpired,
    PythonContextEnded,
    SandboxLost,
    SandlotError,
    StartFailed,
    WaitTimeout,
)

SLACK = (
    60.0  # seconds, after a cell's limit and its kill, without which the context's program counts as stopped
)
RESTART = 30.0  # seconds for a context to restart before its program counts as stopped
_GONE = (Conflict, NotFound, OpExpired)  # what input for an ended op raises


class AsyncPythonContext(AsyncCellReader):
    """Runs cells of Python that share one namespace. Leaving its `async with` block ends it.

    `id` finds it again, also from another process: `Sandbox.attach_python(id)`. Cells run one after the other.
    """

    def __init__(self, *, plane: AsyncPlane, document: Mapping[str, Any], stream: AsyncOpStream) -> None:
        super().__init__(plane=plane, stream=stream)
        self._document = document
        self._lock = Lock()  # held by the call that reads the stream
        self._current: str | None = None

    @property
    def python_version(self) -> str | None:
        """The version of the context's Python, such as "3.11.9"."""
        return self._cells.python

    async def __aenter__(self) -> AsyncPythonContext:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except SandlotError:
            if error is None:
                raise

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        output_limit: int = cells.DEFAULT_LIMIT,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_output: Callable[[RichOutput], object] | None = None,
        cell_id: str | None = None,
    ) -> CellResult:
        """Run a cell and wait for its result, which also describes an exception of the code.

        After `timeout` seconds the cell is interrupted, and 2 s later its process is killed, which loses the
        context's state. Output beyond `output_limit` bytes is dropped. The functions get output as it arrives.
        Cancelling interrupts the cell. Raises PythonContextEnded if the context has no process, and SandboxLost when
        the infrastructure ended it.
        """
        cell = calls.op_id_or_new(cell_id)
        request = cells.run_request(cell, code, timeout=timeout, limit=output_limit)
        patience = None if timeout is None else timeout + cells.GRACE + SLACK
        async with self._lock:
            if self._end.reason is not None:
                raise self._end.error()
            if cell_id is not None:
                with suppress(*_GONE):  # the reader notices it
                    await self._catch_up()  # else an answer to an earlier request with this id counts
            if cell in self._cells.dropped:
                raise OpExpired(
                    f"cell_id: the cell {cell} has run, and its result is no longer kept", status=410
                )
            self._cells.limits[cell] = output_limit
            self._listeners[cell] = Listeners(on_stdout, on_stderr, on_output)
            self._current = cell
            try:
                await self._send(request, patience=patience)
                return await self._result(cell, patience=patience)
            except (SandboxLost, PythonContextEnded):
                raise
            except BaseException:
                await shielded(lambda: self._interrupt_quietly(cell))
                raise
            finally:
                self._current = None
                del self._listeners[cell], self._cells.limits[cell]

    async def result(self, cell_id: str | None = None) -> CellResult:
        """Wait for the result of a cell, by default of the one that runs, else the last: after `attach_python`.

        Eight results are kept. Raises NotFound for a cell that has not begun or whose result is not kept.
        """
        async with self._lock:
            await self._catch_up()
            known = self._cells
            cell = cell_id or (known.running.id if known.running else next(reversed(known.results), None))
            running = known.running is not None and known.running.id == cell
            if cell is None or (not running and cell not in known.results):
                name = "no cell has begun" if cell is None else f"no result of the cell {cell}"
                raise NotFound(f"{name} in the Python context {self.id}: run one", status=404)
            return await self._result(cell, patience=None)

    async def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the running cell, if any, and send SIGINT to the programs that it runs."""
        await self._send({"type": "interrupt", "id": self._current}, patience=RESTART)

    async def restart(self) -> None:
        """Kill the context's processes, also a running cell, and begin with an empty namespace.

        If the context's program has ended, too, a new one starts, with a new `id`. Raises PythonContextEnded if it had
        ended before `attach_python`: how it was started is then not known.
        """
        name = calls.new_id()
        self._cells.restarts[name] = False
        if self._end.reason is None:
            await self._send({"type": "restart", "id": name}, patience=RESTART)
        if not await acquire(self._lock, within=RESTART):
            if self._cells.restarts.pop(name, True):
                return  # the call that reads runs a cell in the new process
            await self._give_up()  # else that call never returns
            await self._lock.acquire()
        try:
            if self._end.reason is None:
                await self._read_until(lambda: self._cells.restarts.get(name, True), patience=RESTART)
            self._cells.restarts.pop(name, None)
            if self._end.reason is not None:
                await self._start_again()
        finally:
            self._lock.release()

    async def aclose(self) -> None:
        """End the context and all its processes. Raises ConnectionFailed if they may go on, after 30 s."""
        await shielded(lambda: self._plane.end(self.id))
        if not self._lock.locked():  # else the call that reads the stream comes to its end
            await self._stream.stop()
            if self._end.reason is None:
                self._end.note(CLOSED)

    async def wait_ready(self, *, wait: float, interpreter: str) -> None:
        """Wait until cells can run; the sandbox's `python` has done so. Raises StartFailed or WaitTimeout."""
        async with self._lock:
            await self._read_until(lambda: self._cells.python is not None, patience=wait)
        if self._end.gave_up:
            raise WaitTimeout(
                f"the Python context was not ready within {wait:g} s: wait longer, or end some of the commands that run"
            )
        if self._cells.python is None:
            cause = self._errors.strip()[-300:] or self._end.reason
            raise StartFailed(
                f"interpreter: {interpreter!r} cannot run a Python context: {cause}; name a Python 3.8 or later",
                code="start_failed",
                field="interpreter",
            )

    # requests

    async def _send(self, request: Mapping[str, Any], *, patience: float | None) -> None:
        """Send a request, which then is read once. An ended context is noticed by the reader of its answers."""
        route = with_query(f"/ops/{self.id}/stdin", {"id": calls.new_id()})
        headers = {"Content-Type": "application/octet-stream"}
        deadline = None if patience is None else now() + patience
        while deadline is None or now() < deadline:
            try:
                answer = await self._plane.send(
                    "POST", route, body=cells.encode(request), headers=headers, accept=(408,)
                )
            except _GONE:
                return
            if answer.status != 408:
                return
            if error_code(answer.body) != "stdin_full":
                raise error_for(status=answer.status, headers=answer.headers, body=answer.body)

    async def _interrupt_quietly(self, cell: str) -> None:
        try:
            await self._send({"type": "interrupt", "id": cell}, patience=RESTART)
        except SandlotError:
            return  # the error that made the caller give up is raised

    # answers

    async def _catch_up(self) -> None:
        """Read what the context has answered so far, to all its clients."""
        end = int((await self._plane.call("GET", f"/ops/{self.id}")).get("offset") or 0)
        await self._read_until(lambda: self._stream.has_read(end))

    async def _result(self, cell: str, *, patience: float | None) -> CellResult:
        def decided() -> bool:
            return cell in self._cells.results or cell in self._cells.refused

        await self._read_until(decided, patience=patience, cell=cell)
        refused = self._cells.refused.pop(cell, None)
        if refused is not None:
            raise PythonContextEnded(
                f"the cell did not run: {refused}; `restart` gives the context a new process"
            )
        result = self._cells.results.get(cell)
        if result is None:
            raise self._end.error()
        return result

    async def _start_again(self) -> None:
        if not self._document["command"]:
            if self._end.lost:
                raise self._end.error()
            raise PythonContextEnded(
                f"the Python context {self.id} had ended before `attach_python`, so how it was started is not known: "
                "start another with `python`",
                verdict=self._end.verdict,
            )
        await self._stream.stop()
        self.id = calls.new_id()
        self._cells, self._errors = Cells(), ""
        self._end = ContextEnd()
        document = {**self._document, "id": self.id}
        self._stream = AsyncOpStream(plane=self._plane, op_id=self.id, document=document, keep=True)
        await self._stream.open()
        await self._read_until(lambda: self._cells.python is not None, patience=RESTART)
        if self._end.reason is not None:
            raise self._end.error()
