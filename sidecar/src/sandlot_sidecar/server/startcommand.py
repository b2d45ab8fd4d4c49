"""The start command of a claim: a detached op whose last output is kept apart from other results."""

from __future__ import annotations

import asyncio
import signal
from collections import deque

from sandlot_contract.frames import STDERR, STDOUT
from sandlot_contract.stop_grace import STOP_GRACE, STOPPING

from ..core.errors import ApiError
from ..core.op import Op, State
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ops import Ops

KEPT = 1 << 20
PIECE = 64 << 10


class _Piece:
    """Consecutive output, interleaved and by stream, so that keeping the order of single bytes costs nothing."""

    __slots__ = ("all", "stderr", "stdout")

    def __init__(self) -> None:
        self.all = bytearray()
        self.stdout = bytearray()
        self.stderr = bytearray()


class TailLog:
    """The last MiB of both streams, in place of an op's FrameLog and without frames."""

    spilled = 0  # bytes on disk

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._held = 0
        self.size = 0
        self.stdout_bytes = 0
        self.stderr_bytes = 0
        self.truncated = False

    def append(self, kind: int, payload: bytes) -> None:
        """Append output; the oldest pieces are dropped beyond the limit."""
        if kind == STDOUT:
            self.stdout_bytes += len(payload)
        elif kind == STDERR:
            self.stderr_bytes += len(payload)
        else:
            return
        pieces = self._pieces
        if not pieces or len(pieces[-1].all) + len(payload) > PIECE:
            pieces.append(_Piece())
        last = pieces[-1]
        last.all += payload
        if kind == STDOUT:
            last.stdout += payload
        else:
            last.stderr += payload
        self._held += len(payload)
        while self._held - len(pieces[0].all) >= KEPT:
            self._held -= len(pieces.popleft().all)
            self.truncated = True

    def say(self, line: bytes) -> None:
        """Append a line of the sidecar's own to stderr."""
        self.append(STDERR, line)

    def text(self, stream: str, *, tail: int) -> bytes:
        """Return the last `tail` bytes of `stdout`, `stderr` or `all`."""
        data = b"".join(getattr(piece, stream) for piece in self._pieces)
        return data[max(0, len(data) - min(tail, KEPT)) :]

    def output(self, kind: int) -> list[bytes]:
        """Return the pieces of one stream."""
        return [bytes(piece.stdout if kind == STDOUT else piece.stderr) for piece in self._pieces]

    def close(self) -> None:
        """Keep the output: as the sandbox's log it outlives the op."""


class StartCommand:
    """Runs the start command at once; its failure does not end the sandbox."""

    def __init__(self, ops: Ops, claim: dict[str, Any]) -> None:
        spec = Spec(command=claim["start_command"])
        self.log = TailLog()
        self.op: Op = ops.begin_apart(spec, log=self.log)
        self.op.detached = True
        self._ops = ops
        # The record of an earlier version has neither.
        self._signal: int = claim.get("stop_signal") or signal.SIGTERM
        grace = claim.get("stop_grace")
        self._grace: float = STOP_GRACE if grace is None else grace
        self._grace_over: asyncio.Future[None] | None = None  # while it is being stopped, and afterwards

    def begin_stop(self) -> bool:
        """Send the stop signal to the command's process; return False if it does not run or has no grace."""
        if self.op.state not in (State.STARTING, State.RUNNING) or not self._grace:
            return False
        try:
            self.op.io.signal(self._signal, tree=False)
        except ApiError:
            return False  # its runner does not read signals any more
        self._grace_over = self._ops.loop.create_future()
        self._ops.watchers.when_ended(self.op, lambda _op: self.end_grace())
        return True

    async def stopped(self) -> None:
        """Wait until it has ended, for its grace at most."""
        if self._grace_over is not None:
            await asyncio.wait([self._grace_over], timeout=self._grace)

    def end_grace(self) -> None:
        """Have `stopped` return now."""
        if self._grace_over is not None and not self._grace_over.done():
            self._grace_over.set_result(None)

    def document(self) -> dict[str, Any]:
        """Return the start command's part of the state document."""
        if self.op.state is State.ENDED:
            return {"state": "ended", "exit_code": self.op.exit_code}
        if self._grace_over is not None:
            return {"state": STOPPING, "exit_code": None}
        return {"state": "none" if self.op.state is State.QUEUED else "running", "exit_code": None}
