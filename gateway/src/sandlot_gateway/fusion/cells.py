"""Reads what the program of a Python context answered to all cells of a request, and does not trust it.

Code in the sandbox can write any bytes into the answers (docs/python-contexts.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sandlot_gateway.python_context.answers import Answer, BadOutput, NoAnswer, media, parse

_AT_ONCE = 500  # lines that are read until other requests get their turn
_MOST_LEFT_OUT = 1000  # outputs that are not valid; each costs more than a valid one


@dataclass(slots=True)
class _Cell:
    """A cell that has begun."""

    stdout: list[str] = field(default_factory=list[str])
    stderr: list[str] = field(default_factory=list[str])
    display: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    error: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: bool = False
    died: bool = False  # and Python with it

    def answer(self) -> dict[str, Any]:
        return {
            "stdout": "".join(self.stdout),
            "stderr": "".join(self.stderr),
            "display": self.display,
            "error": self.error,
        }


class Cells:
    """What is known of the cells of a request; their ids are their numbers."""

    def __init__(self, number: int, *, timeout: float) -> None:
        """`timeout`: seconds that each cell may run."""
        self.ready = False  # Python has started
        self.stopped = ""  # why later cells did not run
        self.timed_out = False  # a cell that could not be interrupted stopped them
        self._waiting = {str(index): index for index in range(number)}
        self._timeout = timeout
        self._cells: dict[str, _Cell] = {}

    @property
    def complete(self) -> bool:
        """Whether all cells ran to their ends."""
        began = len(self._cells) == len(self._waiting)
        return began and not self.stopped and all(cell.ended for cell in self._cells.values())

    def answers(self) -> list[dict[str, Any]]:
        """Return the part of the answer for each cell that has begun, in their order."""
        return [self._cells[cell].answer() for cell in sorted(self._cells, key=self._waiting.__getitem__)]

    def killed(self, why: str) -> None:
        """Tell of the cell that ran when the program was killed, whether or not the program could still tell of it."""
        for cell in self._cells.values():
            if not cell.ended or cell.died:
                cell.ended = cell.died = True
                cell.error = [{"ename": "DeadKernelError", "evalue": why, "traceback": []}]

    async def feed(self, output: bytes) -> None:
        """Take all output of the program; a last line that was cut off counts for nothing."""
        left_out = 0
        for number, line in enumerate(_lines(output)):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                self._take(parse(line, self._waiting))
            except BadOutput:
                left_out += 1
                if left_out > _MOST_LEFT_OUT:
                    self.stopped = "code showed too many invalid outputs"
                    return
            except NoAnswer as error:
                self.stopped = str(error)
                return

    def _take(self, message: Answer) -> None:
        name = message.id or ""
        if message.type == "ready":
            self.ready = True
        elif message.type == "begin" and name in self._waiting:
            self._cells.setdefault(name, _Cell())
        elif message.type == "done" and name in self._waiting:
            self._done(message, name)
        elif message.type == "lost":
            self.stopped = self.stopped or message.message
        elif name in self._cells and not self._cells[name].ended:
            self._output(self._cells[name], message)

    def _output(self, cell: _Cell, message: Answer) -> None:
        if message.type == "stdout":
            cell.stdout.append(message.text)
        elif message.type == "stderr":
            cell.stderr.append(message.text)
        elif message.type in ("display", "result"):
            cell.display.append(media(message.data))

    def _done(self, message: Answer, name: str) -> None:
        if message.status == "refused":
            self.stopped = self.stopped or message.message
            return
        cell = self._cells.setdefault(name, _Cell())
        if cell.ended:
            return
        cell.ended = True
        lines = message.error.traceback if message.error is not None else []
        if message.status == "timeout":
            text = f"the cell reached its time limit of {self._timeout:g} s"
            cell.error.append({"ename": "TimeoutError", "evalue": text, "traceback": lines})
        elif message.status == "died":
            cell.died = True
            cell.error.append({"ename": "DeadKernelError", "evalue": message.message, "traceback": lines})
        elif message.error is not None:
            error = message.error
            cell.error.append({"ename": error.name, "evalue": error.value, "traceback": lines})
        if message.state_lost:
            self.stopped = self.stopped or message.message
            self.timed_out = message.status == "timeout"


def _lines(output: bytes) -> Iterator[bytes]:
    """Yield the complete lines one by one: a list of 24 million empty ones would need 200 MB."""
    at = 0
    while (end := output.find(b"\n", at)) != -1:
        yield output[at:end]
        at = end + 1
