"""Reads the stream of a context's program, and finds in it the answers to one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sandlot_contract import python_driver
from sandlot_contract.frames import END, KEEP_ALIVE, STDERR, STDOUT

from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.errors import UpstreamError
from sandlot_gateway.data.frames import FrameReader
from sandlot_gateway.python_context.answers import Answer, BadOutput, NoAnswer, parse

from . import events

_LONGEST = python_driver.LIMIT + python_driver.SLACK  # bytes of a line: an output of a cell, or its error
_KEPT_ERRORS = 4096


class ProgramEnded(Exception):
    """The context's program has ended; `op` is the op's document."""

    def __init__(self, op: dict[str, Any], errors: str) -> None:
        super().__init__(
            f"{op.get('verdict')}, {op.get('message') or 'exit code ' + str(op.get('exit_code'))}"
        )
        self.op = op
        self.errors = errors  # the end of what it wrote to stderr


class CellStream:
    def __init__(
        self,
        connection: Connection,
        *,
        wanted: str = "",
        on_wait: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`wanted`: the id of a cell or a restart; `on_wait` is called before each wait for the program."""
        self._connection = connection
        self._wanted = wanted
        self._on_wait = on_wait
        self._frames = FrameReader()
        self._line = bytearray()
        self._errors = b""
        self._began = False
        self._found: deque[Answer | NoAnswer | ProgramEnded] = deque()

    async def next(self) -> Answer:
        """Return what comes next about the wanted id, that a process is ready, or a keep-alive.

        Raises NoAnswer for bytes that the program did not write, ProgramEnded, UpstreamError, WireError.
        """
        while not self._found:
            await self._read()
        found = self._found.popleft()
        if isinstance(found, Exception):
            raise found
        return found

    async def _read(self) -> None:
        if self._connection.waits and self._on_wait is not None:
            await self._on_wait()
        data = await self._connection.read()
        if not data:
            raise UpstreamError("the stream of the context closed before its end frame")
        for kind, payload in self._frames.feed(data):
            if kind == STDOUT:
                self._feed(payload)
            elif kind == STDERR:
                self._errors = (self._errors + payload)[-_KEPT_ERRORS:]
            elif kind == KEEP_ALIVE:
                self._found.append(Answer("keepalive"))
            elif kind == END:
                errors = self._errors.decode("utf-8", "replace").strip()
                self._found.append(ProgramEnded(events.document(payload), errors))

    def _feed(self, data: bytes) -> None:
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = bytes(self._line) + complete[0]
            self._line.clear()
        self._line += rest
        for line in complete:
            self._take(line)
        if len(self._line) > _LONGEST:
            self._line.clear()
            self._found.append(NoAnswer("code wrote into the answers to its cells"))

    def _take(self, line: bytes) -> None:
        try:
            answer = parse(line, (self._wanted,))
        except NoAnswer as error:
            if self._began:  # else it may be the rest of a line of an earlier cell
                self._found.append(error)
            return
        except BadOutput:
            return
        if answer.id == self._wanted or answer.type == "ready":
            self._began = self._began or answer.type == "begin"
            self._found.append(answer)
