"""A running command: write to it, resize it, signal it, read its output, wait for it, detach and reattach."""

from __future__ import annotations

from types import TracebackType

from sandlot._async.plane import AsyncPlane
from sandlot._async.stream import AsyncOpStream
from sandlot._protocol import documents
from sandlot._protocol.answers import end_error, error_code, error_for
from sandlot._protocol.calls import new_id
from sandlot._protocol.messages import with_query
from sandlot._tasks_async import Lock, shielded
from sandlot.errors import CommandFailed, Conflict
from sandlot.models import Event, ExecResult

POLL_SECONDS = 25.0
MAX_WRITE = 256 * 1024


class AsyncProcess:
    """A running op. Iterate over it for its output; leaving its `async with` block kills it unless detached."""

    def __init__(
        self, *, plane: AsyncPlane, stream: AsyncOpStream, detached: bool, written: int | None = 0
    ) -> None:
        self.op_id = stream.op_id
        self._plane = plane
        self._stream = stream
        self._detached = detached
        self._written = written  # bytes of input the server has received; None until it was asked
        self._lock = Lock()

    @property
    def pid(self) -> int | None:
        """The process id inside the sandbox; None until the first output was read."""
        return self._stream.pid

    @property
    def offset(self) -> int:
        """Offset at the end of the output read so far, for `attach`."""
        return self._stream.offset

    def __aiter__(self) -> AsyncProcess:
        return self

    async def __anext__(self) -> Event:
        return await self._stream.__anext__()

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def write(self, data: bytes | str) -> None:
        """Write to standard input; wait while the command does not read, at most until it ends."""
        raw = data.encode() if isinstance(data, str) else data
        async with self._lock:
            if self._written is None:
                await self._stdin(b"", eof=False)
            for begin in range(0, len(raw), MAX_WRITE):
                piece = raw[begin : begin + MAX_WRITE]
                await self._stdin(piece, eof=False)

    async def close_stdin(self) -> None:
        """Close standard input; a PTY gets the end-of-file character."""
        async with self._lock:
            if self._written is None:
                await self._stdin(b"", eof=False)
            await self._stdin(b"", eof=True)

    async def feed(self, data: bytes | str) -> None:
        """Write all of standard input and close it; ignore a command that has ended or closed it."""
        try:
            await self.write(data)
            await self.close_stdin()
        except Conflict:
            return

    async def resize(self, *, cols: int, rows: int) -> None:
        """Resize the PTY."""
        await self._plane.call("POST", f"/ops/{self.op_id}/resize", body={"cols": cols, "rows": rows})

    async def signal(self, signal: int | str, *, tree: bool = True) -> None:
        """Send a signal (`15` or `"TERM"`) to the command, with `tree` also to all its descendants."""
        body = {"signal": signal, "tree": tree, "id": new_id()}
        await self._plane.call("POST", f"/ops/{self.op_id}/signal", body=body)

    async def kill(self) -> None:
        """Kill the command and all its descendants; its verdict is `killed`."""
        await self._plane.call("DELETE", f"/ops/{self.op_id}")

    async def poll(self) -> ExecResult | None:
        """Return the result without output if the command has ended, else None."""
        document = await self._plane.call("GET", f"/ops/{self.op_id}")
        if document.get("state") != "ended":
            return None
        return documents.result_from_exit(
            documents.exit_event(document, op_id=self.op_id), stdout=b"", stderr=b""
        )

    async def wait(self, *, check: bool = False) -> ExecResult:
        """Wait for the end; the result has all the kept output, whether or not you also iterated over it.

        Raises SandboxLost when the infrastructure ended it and, with `check`, CommandFailed for any other failure.
        """
        while True:
            route = with_query(f"/ops/{self.op_id}", {"wait": POLL_SECONDS})
            document = await self._plane.call("GET", route, timeout=POLL_SECONDS + 30)
            if document.get("state") == "ended":
                break
        end = documents.exit_event(document, op_id=self.op_id)
        error = end_error(end, sandbox_id=self._plane.sandbox_id)
        if error is not None:
            raise error
        result = documents.result_from_exit(
            end,
            stdout=await self._output("stdout", end.stdout_bytes),
            stderr=await self._output("stderr", end.stderr_bytes),
        )
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    async def detach(self) -> str:
        """Leave the command running without a client; return the op id for `Sandbox.attach`."""
        if not self._detached:
            await self._plane.call("POST", f"/ops/{self.op_id}/detach")
            self._detached = True
        await self._stream.stop()
        return self.op_id

    async def aclose(self) -> None:
        """Stop streaming; end the command if it still runs and is not detached."""
        if self._detached or self._stream.exit is not None:
            await self._stream.stop()
        else:
            await self._stream.stop()
            await shielded(lambda: self._plane.kill(self.op_id))

    async def _stdin(self, data: bytes, *, eof: bool) -> None:
        route = with_query(
            f"/ops/{self.op_id}/stdin", {"offset": self._written or 0, "eof": 1 if eof else None}
        )
        headers = {"Content-Type": "application/octet-stream"}
        # Without a response the received length is unknown; the server would drop later input at an old offset as a repeat.
        self._written = None
        while True:
            answer = await self._plane.send("POST", route, body=data, headers=headers, accept=(408,))
            if answer.status != 408:
                break
            # The command has not read for 30 s, which is no failure of the server: send again. The server drops the
            # part that it already has.
            if error_code(answer.body) != "stdin_full":
                raise error_for(status=answer.status, headers=answer.headers, body=answer.body)
        self._written = int(documents.parse(answer.body)["offset"])

    async def _output(self, stream: str, size: int) -> bytes:
        if not size:
            return b""
        route = with_query(f"/ops/{self.op_id}/output", {"stream": stream})
        return (await self._plane.send("GET", route)).body
