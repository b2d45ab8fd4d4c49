"""Commands of stub sidecars: `true` ends at once, `sleep 2` after two seconds, `hold` and `hold NAME` when the commands of
this text are released; each op runs once. A sandbox's last ones can be listed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOLD = "hold"
SLEEP = "sleep "
_LISTED = 100  # of a sandbox
_END = {
    "stdout": "",
    "stderr": "",
    "exit_code": 0,
    "verdict": "exited",
    "usage": {"queued": 0.0, "wall": 0.001, "cpu": 0.001},
}


@dataclass(frozen=True, slots=True)
class Count:
    """`runs`: commands that were started; `held`: those that wait for the release; `attached`: requests that wait for
    one, each on a connection; `dropped`: such connections that were closed so far.
    """

    runs: int
    held: int
    attached: int
    dropped: int


@dataclass(slots=True)
class _Command:
    op: str
    command: str
    started: float  # wall clock
    ended: float | None = None

    def document(self) -> dict[str, Any]:
        over = self.ended is not None
        wall = (self.ended or time.time()) - self.started
        return {
            "op_id": self.op,
            "command": self.command[:256],
            "start_command": False,
            "state": "ended" if over else "running",
            "verdict": "exited" if over else None,
            "message": None,
            "exit_code": 0 if over else None,
            "signal": None,
            "started_at": self.started,
            "ended_at": self.ended,
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "truncated": False,
            "usage": {"wall": wall, "cpu": 0.001, "peak_memory": 1 << 20},
        }


class StubCommands:
    """A request with the id of a command that runs waits for the same end; one with that of an ended one gets it."""

    def __init__(self) -> None:
        self._known: dict[str, _Command] = {}  # by op
        self._of: dict[str, deque[_Command]] = {}  # the last ones of each sandbox
        self._held: dict[str, str] = {}  # commands by op
        self._waiting: dict[object, tuple[str, Callable[[bytes], None]]] = {}  # by connection
        self._runs = 0
        self._dropped = 0

    def run(
        self, op: str, body: bytes, *, sandbox: str, connection: object, answer: Callable[[bytes], None]
    ) -> None:
        """Run a command, or attach to it. `answer` gets the body of the response."""
        if op not in self._known:
            self._runs += 1
            made = _Command(op, json.loads(body)["command"], time.time())
            self._known[op] = made
            self._of.setdefault(sandbox, deque(maxlen=_LISTED)).append(made)
            self._begin(op, made.command)
        if op in self._held:
            self._waiting[connection] = op, answer
        else:
            answer(_end(op))

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

    def _finish(self, ops: set[str]) -> None:
        for op in ops:
            self._held.pop(op, None)
            self._known[op].ended = time.time()
        for connection, (op, answer) in tuple(self._waiting.items()):
            if op in ops:
                del self._waiting[connection]
                answer(_end(op))

    def listed(self, sandbox: str) -> dict[str, Any]:
        """Return the document of its last commands, newest first."""
        known = self._of.get(sandbox, ())
        return {"commands": [each.document() for each in reversed(known)], "total": len(known)}

    def forget(self, sandbox: str) -> None:
        """List nothing more of a sandbox that has ended."""
        self._of.pop(sandbox, None)

    def count(self) -> Count:
        return Count(self._runs, len(self._held), len(self._waiting), self._dropped)


def _end(op: str) -> bytes:
    return json.dumps({**_END, "op_id": op}).encode()
