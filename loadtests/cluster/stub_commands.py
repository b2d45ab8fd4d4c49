"""Commands of stub sidecars: `true` ends at once, `sleep 2` after two seconds, `hold` and `hold NAME` when the commands of
this text are released, all when their sandbox ends; each op runs once. A sandbox's last ones can be listed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandlot_contract.verdicts import CommandVerdict
from sandlot_sidecar.core.errors import ApiError

HOLD = "hold"
SLEEP = "sleep "
_LISTED = 100  # of a sandbox
_KILLED = 137  # the exit code in the answer of a command that has none


@dataclass(frozen=True, slots=True)
class Count:
    """`runs`: commands that were started; `held`: those that wait for the release; `attached`: requests that wait for
    one, each on a connection; `dropped`: such connections that were closed so far.
    """

    runs: int
    held: int
    attached: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command, as the answer to `exec` tells it; `verdict` is also in a header."""

    op: str
    verdict: str
    wall: float  # seconds

    def body(self) -> bytes:
        told = {
            "stdout": "",
            "stderr": "",
            "exit_code": 0 if self.verdict == CommandVerdict.EXITED else _KILLED,
            "op_id": self.op,
            "verdict": self.verdict,
            "signal": None,
            "truncated": False,
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "message": None,
            "usage": _usage(self.wall),
        }
        return json.dumps(told).encode()


@dataclass(slots=True)
class _Command:
    op: str
    command: str
    started: float  # wall clock
    ended: float | None = None
    verdict: str = CommandVerdict.EXITED

    @property
    def wall(self) -> float:
        return (self.ended or time.time()) - self.started

    def answer(self) -> Ended:
        return Ended(self.op, self.verdict, self.wall)

    def document(self) -> dict[str, Any]:
        over = self.ended is not None
        return {
            "op_id": self.op,
            "state": "ended" if over else "running",
            "pid": None,
            "verdict": self.verdict if over else None,
            "exit_code": 0 if over and self.verdict == CommandVerdict.EXITED else None,
            "signal": None,
            "message": None,
            "truncated": False,
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "usage": _usage(self.wall),
            "started_at": self.started,
            "ended_at": self.ended,
            "offset": 0,
            "detached": False,
            "command": self.command[:256],
            "start_command": False,
        }


class StubCommands:
    """A request with the id of a command that runs waits for the same end; one with that of an ended one gets it."""

    def __init__(self) -> None:
        self._known: dict[str, _Command] = {}  # by op
        self._of: dict[str, deque[_Command]] = {}  # the last ones of each sandbox
        self._held: dict[str, str] = {}  # commands by op
        self._waiting: dict[object, tuple[str, Callable[[Ended], None]]] = {}  # by connection
        self._runs = 0
        self._dropped = 0

    def run(
        self, op: str, body: bytes, *, sandbox: str, connection: object, answer: Callable[[Ended], None]
    ) -> None:
        """Run a command, or attach to it. `answer` gets its end. Raises ApiError for another command's id."""
        text = json.loads(body)["command"]
        if op not in self._known:
            self._runs += 1
            made = _Command(op, text, time.time())
            self._known[op] = made
            self._of.setdefault(sandbox, deque(maxlen=_LISTED)).append(made)
            self._begin(op, text)
        elif self._known[op].command != text:
            why = "this op id belongs to another command: choose a new one"
            raise ApiError(409, "op_conflict", why, field="id", op_id=op)
        if op in self._held:
            self._waiting[connection] = op, answer
        else:
            answer(self._known[op].answer())

    def left(self, connection: object) -> None:
        """Note that a connection is closed: nobody waits on it any more, and its command goes on."""
        if self._waiting.pop(connection, None) is not None:
            self._dropped += 1

    def release(self, command: str = HOLD) -> None:
        """End all held commands of this text."""
        self._finish({op for op, held in self._held.items() if held == command})

    def _begin(self, op: str, command: str) -> None:
        if command.startswith((HOLD, SLEEP)):
            self._held[op] = command
        else:
            self._known[op].ended = time.time()
        if command.startswith(SLEEP):
            seconds = float(command.removeprefix(SLEEP))
            asyncio.get_running_loop().call_later(seconds, self._finish, {op})

    def _finish(self, ops: set[str], verdict: str = CommandVerdict.EXITED) -> None:
        for op in ops & self._held.keys():
            del self._held[op]
            self._known[op].ended, self._known[op].verdict = time.time(), verdict
        for connection, (op, answer) in tuple(self._waiting.items()):
            if op in ops:
                del self._waiting[connection]
                answer(self._known[op].answer())

    def running(self, sandbox: str) -> int:
        """Return how many of its last commands have not ended."""
        return sum(each.ended is None for each in self._of.get(sandbox, ()))

    def listed(self, sandbox: str) -> dict[str, Any]:
        """Return the document of its last commands, newest first."""
        known = self._of.get(sandbox, ())
        return {"commands": [each.document() for each in reversed(known)], "total": len(known)}

    def end(self, sandbox: str, *, verdict: str) -> None:
        """End the commands of a sandbox that has ended, and list none of them any more."""
        self._finish({each.op for each in self._of.pop(sandbox, ()) if each.ended is None}, verdict)

    def count(self) -> Count:
        return Count(self._runs, len(self._held), len(self._waiting), self._dropped)


def _usage(wall: float) -> dict[str, float | int]:
    return {"queued": 0.0, "wall": wall, "cpu": 0.001, "peak_memory": 1 << 20}
