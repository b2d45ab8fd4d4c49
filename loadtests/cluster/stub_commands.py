"""Commands of stub sidecars: `true` ends at once, `sleep 2` after two seconds, `hold` and `hold NAME` when the commands of
this text are released; each op runs once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

HOLD = "hold"
SLEEP = "sleep "
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
    one, each on a connection.
    """

    runs: int
    held: int
    attached: int


class StubCommands:
    """A request with the id of a command that runs waits for the same end; one with that of an ended one gets it."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._held: dict[str, str] = {}  # commands by op
        self._waiting: dict[object, tuple[str, Callable[[bytes], None]]] = {}  # by connection
        self._runs = 0

    def run(self, op: str, body: bytes, *, connection: object, answer: Callable[[bytes], None]) -> None:
        """Run a command, or attach to it. `answer` gets the body of the response."""
        if op not in self._held and op not in self._ended:
            self._runs += 1
            self._begin(op, json.loads(body)["command"])
        if op in self._held:
            self._waiting[connection] = op, answer
        else:
            answer(_end(op))

    def left(self, connection: object) -> None:
        """Note that a connection is closed: nobody waits on it any more, and its command goes on."""
        self._waiting.pop(connection, None)

    def release(self, command: str = HOLD) -> None:
        """End all held commands of this text."""
        self._finish({op for op, held in self._held.items() if held == command})

    def _begin(self, op: str, command: str) -> None:
        if command.startswith((HOLD, SLEEP)):
            self._held[op] = command
        else:
            self._ended.add(op)
        if command.startswith(SLEEP):
            seconds = float(command.removeprefix(SLEEP))
            asyncio.get_running_loop().call_later(seconds, self._finish, {op})

    def _finish(self, ops: set[str]) -> None:
        for op in ops:
            self._held.pop(op, None)
        self._ended |= ops
        for connection, (op, answer) in tuple(self._waiting.items()):
            if op in ops:
                del self._waiting[connection]
                answer(_end(op))

    def count(self) -> Count:
        return Count(self._runs, len(self._held), len(self._waiting))


def _end(op: str) -> bytes:
    return json.dumps({**_END, "op_id": op}).encode()
