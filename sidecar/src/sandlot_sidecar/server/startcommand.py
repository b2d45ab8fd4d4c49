"""The start command of a claim: a detached op whose last output is kept apart from the ops' results."""

from __future__ import annotations

from .framelog import STDERR, STDOUT
from .machine import ENDED, RUNNING, Op
from .spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .ops import Ops

KEPT = 1 << 20


class TailLog:
    """The last MiB of both streams; stands where an op's FrameLog stands, and has no frames."""

    spilled = 0  # bytes on the disk

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.held = 0
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
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last[0] == kind and len(last[1]) + len(payload) <= 32768:
            self.pieces[-1] = (kind, last[1] + payload)
        else:
            self.pieces.append((kind, payload))
        self.held += len(payload)
        while self.held - len(self.pieces[0][1]) >= KEPT:
            self.held -= len(self.pieces.pop(0)[1])
            self.truncated = True

    def say(self, line: bytes) -> None:
        """A line of our own at the end of stderr."""
        self.append(STDERR, line)

    def text(self, stream: str, *, tail: int) -> bytes:
        """The last `tail` bytes of `stdout`, `stderr` or `all`."""
        wanted = {"stdout": (STDOUT,), "stderr": (STDERR,), "all": (STDOUT, STDERR)}[stream]
        data = b"".join(piece for kind, piece in self.pieces if kind in wanted)
        return data[max(0, len(data) - min(tail, KEPT)) :]

    def output(self, kind: int) -> list[bytes]:
        """The pieces of one stream."""
        return [piece for found, piece in self.pieces if found == kind]

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
        if self.op.state is ENDED:
            return {"state": "ended", "exit_code": self.op.exit_code}
        return {"state": "running" if self.op.state is RUNNING else "none", "exit_code": None}
