# This file is auto-generated from sdk/src/sandlot/_async/process.py by tools/async_to_sync.py: do not change it.
"""A running command: write to it, resize it, signal it, read its output, wait for it, detach and reattach."""

from __future__ import annotations

from types import TracebackType

from sandlot._protocol import documents
from sandlot._protocol.answers import end_error, error_code, error_for
from sandlot._protocol.calls import new_id
from sandlot._protocol.messages import with_query
from sandlot._sync.plane import Plane
from sandlot._sync.stream import OpStream
from sandlot._tasks_sync import Lock, shielded
from sandlot.errors import CommandFailed, Conflict
from sandlot.models import Event, ExecResult

POLL_SECONDS = 25.0
MAX_WRITE = 256 * 1024


class Process:
    """A running op. Iterate over it for its output; leaving its `with` block kills it unless detached."""

    def __init__(self, *, plane: Plane, stream: OpStream, detached: bool, written: int | None = 0) -> None:
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

    def __iter__(self) -> Process:
        return self

    def __next__(self) -> Event:
        return self._stream.__next__()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, data: bytes | str) -> None:
        """Write to standard input; wait while the command does not read, at most until it ends."""
        raw = data.encode() if isinstance(data, str) else data
        with self._lock:
            if self._written is None:
                self._stdin(b"", eof=False)
            for begin in range(0, len(raw), MAX_WRITE):
                piece = raw[begin : begin + MAX_WRITE]
                self._stdin(piece, eof=False)

    def close_stdin(self) -> None:
        """Close standard input; a PTY gets the end-of-file character."""
        with self._lock:
            if self._written is None:
                self._stdin(b"", eof=False)
            self._stdin(b"", eof=True)

    def feed(self, data: bytes | str) -> None:
        """Write all of standard input and close it; ignore a command that has ended or closed it."""
        try:
            self.write(data)
            self.close_stdin()
        except Conflict:
            return

    def resize(self, *, cols: int, rows: int) -> None:
        """Resize the PTY."""
        self._plane.call("POST", f"/ops/{self.op_id}/resize", body={"cols": cols, "rows": rows})

    def signal(self, signal: int | str, *, tree: bool = True) -> None:
        """Send a signal (`15` or `"TERM"`) to the command, with `tree` also to all its descendants."""
        body = {"signal": signal, "tree": tree, "id": new_id()}
        self._plane.call("POST", f"/ops/{self.op_id}/signal", body=body)

    def kill(self) -> None:
        """Kill the command and all its descendants; its verdict is `killed`."""
        self._plane.call("DELETE", f"/ops/{self.op_id}")

    def poll(self) -> ExecResult | None:
        """Return the result without output if the command has ended, else None."""
        document = self._plane.call("GET", f"/ops/{self.op_id}")
        if document.get("state") != "ended":
            return None
        return documents.result_from_exit(
            documents.exit_event(document, op_id=self.op_id), stdout=b"", stderr=b""
        )

    def wait(self, *, check: bool = False) -> ExecResult:
        """Wait for the end; the result has all the kept output, whether or not you also iterated over it.

        Raises SandboxLost when the infrastructure ended it and, with `check`, CommandFailed for any other failure.
        """
        while True:
            route = with_query(f"/ops/{self.op_id}", {"wait": POLL_SECONDS})
            document = self._plane.call("GET", route, timeout=POLL_SECONDS + 30)
            if document.get("state") == "ended":
                break
        end = documents.exit_event(document, op_id=self.op_id)
        error = end_error(end, sandbox_id=self._plane.sandbox_id)
        if error is not None:
            raise error
        result = documents.result_from_exit(
            end,
            stdout=self._output("stdout", end.stdout_bytes),
            stderr=self._output("stderr", end.stderr_bytes),
        )
        if check and not result.ok:
            raise CommandFailed(result)
        return result

    def detach(self) -> str:
        """Leave the command running without a client; return the op id for `Sandbox.attach`."""
        if not self._detached:
            self._plane.call("POST", f"/ops/{self.op_id}/detach")
            self._detached = True
        self._stream.stop()
        return self.op_id

    def close(self) -> None:
        """Stop streaming; end the command if it still runs and is not detached."""
        if self._detached or self._stream.exit is not None:
            self._stream.stop()
        else:
            self._stream.stop()
            shielded(lambda: self._plane.kill(self.op_id))

    def _stdin(self, data: bytes, *, eof: bool) -> None:
        route = with_query(
            f"/ops/{self.op_id}/stdin", {"offset": self._written or 0, "eof": 1 if eof else None}
        )
        headers = {"Content-Type": "application/octet-stream"}
        # Without a response the received length is unknown; the server would drop later input at an old offset as a repeat.
        self._written = None
        while True:
            answer = self._plane.send("POST", route, body=data, headers=headers, accept=(408,))
            if answer.status != 408:
                break
            # The command has not read for 30 s, which is no failure of the server: send again. The server drops the
            # part that it already has.
            if error_code(answer.body) != "stdin_full":
                raise error_for(status=answer.status, headers=answer.headers, body=answer.body)
        self._written = int(documents.parse(answer.body)["offset"])

    def _output(self, stream: str, size: int) -> bytes:
        if not size:
            return b""
        route = with_query(f"/ops/{self.op_id}/output", {"stream": stream})
        return (self._plane.send("GET", route)).body
