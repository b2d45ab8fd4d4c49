"""Reads what the program of a Python context answered to all cells of a request, and does not trust it.

Code in the sandbox can write any bytes into the answers (docs/python-contexts.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

_MOST_JSON = 1 << 20  # bytes of an output's JSON
_DEEPEST = 64  # nesting of an output's JSON; more than clients' own limits would fail there
_AT_ONCE = 500  # lines that are read until other requests get their turn
_MOST_LEFT_OUT = 1000  # outputs that are not valid; each costs more than a valid one
_OUTPUTS = (b'{"type":"display"', b'{"type":"result"')


class _Error(msgspec.Struct):
    name: str
    value: str
    traceback: list[str]


class _Message(msgspec.Struct):
    type: str
    id: str | None = None
    text: str = ""
    data: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict[str, msgspec.Raw])
    status: str = ""
    error: _Error | None = None
    message: str = ""
    state_lost: bool = False


_decoder = msgspec.json.Decoder(_Message)


@dataclass(slots=True)
class _Cell:
    """A cell that has begun."""

    stdout: list[str] = field(default_factory=list[str])
    stderr: list[str] = field(default_factory=list[str])
    display: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    error: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: bool = False

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

    async def feed(self, output: bytes) -> None:
        """Take all output of the program; a last line that was cut off counts for nothing."""
        left_out = 0
        for number, line in enumerate(_lines(output)):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                self._take(_decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if line.startswith(_OUTPUTS) and left_out < _MOST_LEFT_OUT:
                    left_out += 1  # a representation with NaN, which no JSON has
                    continue
                self.stopped = "code wrote into the answers to its cells"
                return

    def _take(self, message: _Message) -> None:
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

    def _output(self, cell: _Cell, message: _Message) -> None:
        if message.type == "stdout":
            cell.stdout.append(message.text)
        elif message.type == "stderr":
            cell.stderr.append(message.text)
        elif message.type in ("display", "result"):
            cell.display.append(_media(message.data))

    def _done(self, message: _Message, name: str) -> None:
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


def _media(data: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """Return the media types and their values: text, or JSON that does not harm who reads it."""
    kept: dict[str, Any] = {}
    for media, raw in data.items():
        content = bytes(raw)
        if content.startswith(b'"'):
            kept[media] = msgspec.json.decode(content, type=str)
        elif _is_harmless(media, content):
            kept[media] = msgspec.Raw(content)  # which needs less memory than the objects
    return kept


def _is_harmless(media: str, content: bytes) -> bool:
    if not media.endswith("json") or len(content) > _MOST_JSON:
        return False
    return _is_shallow(msgspec.json.decode(content), _DEEPEST)


def _is_shallow(value: object, left: int) -> bool:
    if isinstance(value, dict):
        items = list(cast(dict[str, object], value).values())
    elif isinstance(value, list):
        items = cast(list[object], value)
    else:
        return True
    return left > 0 and all(_is_shallow(item, left - 1) for item in items)
