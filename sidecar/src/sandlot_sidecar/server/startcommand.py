"""The start command of a claim: a detached op whose last output is kept apart from the ops' results."""

from __future__ import annotations

from collections import deque

from sandlot_contract.frames import STDERR, STDOUT

from ..core.op import Op, State
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ops import Ops

KEPT = 1 << 20
PIECE = 64 << 10


class _Piece:
    """What came one after the other, both streams together and each by itself: so the order of single bytes costs nothing."""

    __slots__ = ("all", "stderr", "stdout")

    def __init__(self) -> None:
        self.all = bytearray()
        self.stdout = bytearray()
        self.stderr = bytearray()


class TailLog:
    """The last MiB of both streams; stands where an op's FrameLog stands, and has no frames."""

    spilled = 0  # bytes on the disk

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._held = 0
        self.size = 0
        self.stdout_bytes = 0
        self.stderr_bytes = 0
        self.truncated = False

    def append(self, kind: int, payload: bytes) -> None:
        """Keep output; the oldest pieces go when there is too much."""
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
        """A line of our own at the end of stderr."""
        self.append(STDERR, line)

    def text(self, stream: str, *, tail: int) -> bytes:
        """The last `tail` bytes of `stdout`, `stderr` or `all`."""
        data = b"".join(getattr(piece, stream) for piece in self._pieces)
        return data[max(0, len(data) - min(tail, KEPT)) :]

    def output(self, kind: int) -> list[bytes]:
        """The pieces of one stream."""
        return [bytes(piece.stdout if kind == STDOUT else piece.stderr) for piece in self._pieces]

    def close(self) -> None:
        """The output outlives the op: it is the sandbox's log."""


class StartCommand:
    """Runs it at once; its failure is nobody's but the caller's to see."""

    def __init__(self, ops: Ops, command: str | list[str]) -> None:
        spec = Spec(command=command)
        self.log = TailLog()
        self.op: Op = ops.begin_apart(spec, log=self.log)
        self.op.detached = True

    def document(self) -> dict[str, Any]:
        """For the state."""
        if self.op.state is State.ENDED:
            return {"state": "ended", "exit_code": self.op.exit_code}
        return {"state": "none" if self.op.state is State.QUEUED else "running", "exit_code": None}
