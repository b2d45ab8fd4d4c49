"""A cell, and what the client is told of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .protocol import LIMIT, cut, encode, is_environment, write_all

if TYPE_CHECKING:
    from .protocol import Message


class Cell:
    """A cell that runs or waits."""

    def __init__(self, request: Message) -> None:
        self.id: str = request["id"]
        self.code: str = request["code"]
        self.env: dict[str, str] = request.get("env") or {}
        if type(self.code) is not str or type(self.id) is not str or not is_environment(self.env):
            raise TypeError
        self.timeout: float | None = request.get("timeout")
        self.left: int = request.get("limit", LIMIT)
        self.begun = 0.0
        self.deadline: float | None = None
        self.started = False  # the child says so
        self.interrupted = False
        self.timed_out = False
        self.truncated = False


class Answers:
    """Messages to the client, on descriptor 1; `left` is how many bytes may still be written."""

    def __init__(self, total: int) -> None:
        self.left = total

    def bounded(self, cell: Cell, message: Message) -> None:
        """Send a message of a cell's output, or what its limit leaves of its text."""
        if cell.truncated:
            return
        line = encode(message)
        if len(line) > cell.left:
            cell.truncated = True
            text = cut(message.get("text", ""), cell.left - 256)  # without the message's other fields
            if not text:
                return
            line = encode(dict(message, text=text))
        cell.left -= len(line)
        self._write(line)

    def done(
        self,
        cell: Cell,
        status: str,
        *,
        error: Message | None = None,
        message: str = "",
        lost: bool = False,
    ) -> None:
        self.send(
            {
                "type": "done",
                "id": cell.id,
                "status": status,
                "error": error,
                "message": message,
                "state_lost": lost,
                "truncated": cell.truncated,
                "seconds": round(time.monotonic() - cell.begun, 6) if cell.begun else 0.0,
            }
        )

    def send(self, message: Message) -> None:
        self._write(encode(message))

    def _write(self, line: bytes) -> None:
        self.left -= len(line)
        write_all(1, line)
