"""The protocol of a Python context: builds requests, and makes results of the answers, which it does not trust.

Code in the sandbox can write any bytes into the answers, so each field is checked and each cell's output is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from sandlot._protocol import checks
from sandlot._protocol.json_size import outside_strings
from sandlot.cells import CellError, CellResult, CellStatus, RichOutput
from sandlot.models import Verdict

TOTAL = 256 << 20  # bytes that a context may write in all
DEFAULT_LIMIT = 8 << 20  # bytes of a cell's output
MAX_LIMIT = 16 << 20
MAX_LINE = MAX_LIMIT + (2 << 20)
MAX_JSON = 1 << 20  # bytes of a cell's displayed objects that are in no string
MAX_CODE = 16 << 20
MAX_SECONDS = 1e9
KEPT = 8  # results of the latest cells
KNOWN = 10_000  # cells whose repetition is noticed
MAX_ID = 128
GRACE = 2.0  # seconds from the interrupt at a timeout to the kill
REFUSED = "refused"


class CellProtocolError(Exception):
    """The context's output is not made of its messages."""


@dataclass(frozen=True, slots=True)
class CellOutput:
    """A piece of a cell's output: text of `stdout` or `stderr`, or an object that it displayed."""

    cell: str
    kind: str
    output: str | RichOutput


@dataclass(frozen=True, slots=True)
class Listeners:
    """Functions of the caller that get a cell's output as it arrives."""

    on_stdout: Callable[[str], object] | None = None
    on_stderr: Callable[[str], object] | None = None
    on_output: Callable[[RichOutput], object] | None = None

    def take(self, piece: CellOutput) -> None:
        """Call the function for this output, if there is one."""
        if isinstance(piece.output, RichOutput):
            if self.on_output is not None:
                self.on_output(piece.output)
        else:
            function = self.on_stdout if piece.kind == "stdout" else self.on_stderr
            if function is not None:
                function(piece.output)


@dataclass(slots=True)
class Running:
    """A cell that has begun, with its output so far."""

    id: str
    execution_count: int
    left: int
    json_left: int = MAX_JSON
    stdout: list[str] = field(default_factory=list[str])
    stderr: list[str] = field(default_factory=list[str])
    outputs: list[RichOutput] = field(default_factory=list[RichOutput])
    truncated: bool = False

    def end(
        self,
        status: CellStatus,
        *,
        error: CellError | None = None,
        message: str = "",
        state_lost: bool = False,
        truncated: bool = False,
        seconds: float = 0.0,
        verdict: Verdict | None = None,
    ) -> CellResult:
        """Return the cell's result."""
        return CellResult(
            id=self.id,
            status=status,
            execution_count=self.execution_count,
            stdout="".join(self.stdout),
            stderr="".join(self.stderr),
            outputs=tuple(self.outputs),
            error=error,
            message=message,
            state_lost=state_lost,
            truncated=truncated or self.truncated,
            seconds=seconds,
            verdict=verdict,
        )


class Cells:
    """Reads the answers of a context: which cell runs, the latest results, whether the context has a process."""

    def __init__(self) -> None:
        self.python: str | None = None  # the interpreter's version; None until it is ready
        self.lost: str | None = None  # why there is no process
        self.running: Running | None = None
        self.results: dict[str, CellResult] = {}
        self.dropped: dict[str, None] = {}  # cells whose results are no longer kept
        # Only what a caller waits for is kept: code could write millions of others.
        self.limits: dict[str, int] = {}  # cell that this client has sent -> its limit of output
        self.refused: dict[str, str] = {}
        self.restarts: dict[str, bool] = {}
        self._buffer: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[CellOutput]:
        """Take bytes of the answers, in any chunks; return the output in them. Raises CellProtocolError."""
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = b"".join(self._buffer) + complete[0]
            self._buffer, self._size = [], 0
        self._buffer.append(rest)
        self._size += len(rest)
        if self._size > MAX_LINE or any(len(line) > MAX_LINE for line in complete):
            raise CellProtocolError(f"a message of over {MAX_LINE} bytes")
        shown: list[CellOutput] = []
        for line in complete:
            if len(line) > MAX_JSON and outside_strings(line, most=MAX_JSON) > MAX_JSON:
                if self.running is not None:
                    self.running.truncated = True
                continue
            self._take(_parsed(line), line, shown)
        return shown

    def cut(self, status: CellStatus | None, *, message: str, verdict: Verdict | None) -> None:
        """End the running cell, whose context has ended; without a status it has no result."""
        running, self.running = self.running, None
        if running is not None and status is not None:
            self._keep(running.end(status, message=message, state_lost=True, verdict=verdict))

    def _keep(self, result: CellResult) -> None:
        self.results[result.id] = result
        for name in [*self.results][:-KEPT]:
            if name not in self.limits:
                del self.results[name]
                self.dropped[name] = None
        while len(self.dropped) > KNOWN:
            del self.dropped[next(iter(self.dropped))]

    def _take(self, message: Mapping[str, Any], line: bytes, shown: list[CellOutput]) -> None:
        kind = message.get("type")
        if kind == "ready":
            self.python, self.lost = _text(message, "python"), None
            restart = message.get("id")
            if isinstance(restart, str) and restart in self.restarts:
                self.restarts[restart] = True
        elif kind == "lost":
            self.lost = _text(message, "message")
        elif kind == "begin":
            if self.running is not None:
                raise CellProtocolError("a second cell at a time")
            cell = _cell(message)
            self.running = Running(
                cell, _number(message, "execution_count"), self.limits.get(cell, MAX_LIMIT)
            )
        elif kind in ("stdout", "stderr", "display", "result"):
            self._output(str(kind), message, line, shown)
        elif kind == "done":
            self._done(message)

    def _output(self, kind: str, message: Mapping[str, Any], line: bytes, shown: list[CellOutput]) -> None:
        running = self.running
        if running is None or running.id != _text(message, "id"):
            return
        running.left -= len(line)
        if kind in ("display", "result"):
            running.json_left -= outside_strings(line, most=MAX_JSON)
        if min(running.left, running.json_left) < 0:
            running.truncated = True
            return
        if kind in ("stdout", "stderr"):
            text = _text(message, "text")
            (running.stdout if kind == "stdout" else running.stderr).append(text)
            shown.append(CellOutput(running.id, kind, text))
            return
        output = RichOutput(_media(message.get("data")), _object(message.get("metadata")), kind == "result")
        running.outputs.append(output)
        shown.append(CellOutput(running.id, kind, output))

    def _done(self, message: Mapping[str, Any]) -> None:
        cell, status = _cell(message), _text(message, "status")
        if status == REFUSED:
            if cell in self.limits:
                self.refused[cell] = _text(message, "message")
            return
        if status not in set(CellStatus):
            raise CellProtocolError(f"a cell that ended as {status[:80]!r}")
        running = self.running
        if running is None or running.id != cell:
            running = Running(cell, 0, 0)  # interrupted before it began
        else:
            self.running = None
        lost = message.get("state_lost") is True
        text = _text(message, "message")
        if lost:
            self.lost = text
        result = running.end(
            CellStatus(status),
            error=_error(message.get("error")),
            message=text,
            state_lost=lost,
            truncated=message.get("truncated") is True,
            seconds=_seconds(message.get("seconds")),
        )
        self._keep(result)


def run_request(cell: str, code: str, *, timeout: float | None, limit: int) -> dict[str, Any]:
    """Build the request that runs a cell. Raises ValueError."""
    if len(code) > MAX_CODE:
        raise ValueError(f"code: has {len(code)} characters, and may have {MAX_CODE}: write it to a file")
    if not 0 <= limit <= MAX_LIMIT:
        raise ValueError(f"output_limit: must be 0 to {MAX_LIMIT} bytes, not {limit}")
    request: dict[str, Any] = {"type": "run", "id": cell, "code": code, "limit": limit}
    if timeout is not None:
        request["timeout"] = checks.seconds(timeout, name="timeout")
    return request


def encode(request: Mapping[str, Any]) -> bytes:
    """Encode a request; its first newline ends one that a lost connection cut off."""
    return b"\n" + json.dumps(request, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CellProtocolError(f"a line that is no JSON: {line[:80]!r}") from error
    if not isinstance(value, dict):
        raise CellProtocolError(f"a line that is no message: {line[:80]!r}")
    return cast(dict[str, Any], value)


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise CellProtocolError(f"a message whose {name} is no text")
    return value


def _cell(message: Mapping[str, Any]) -> str:
    cell = _text(message, "id")
    if len(cell) > MAX_ID:
        raise CellProtocolError(f"a cell's id of {len(cell)} characters")
    return cell


def _number(message: Mapping[str, Any], name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int):
        raise CellProtocolError(f"a message whose {name} is no number")
    return value


def _seconds(value: object) -> float:
    """Return the time, or 0 for a number that is none, such as one that no float can have."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= MAX_SECONDS else 0.0


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CellProtocolError("an output that is no object")
    return cast(dict[str, Any], value)


def _media(value: object) -> dict[str, Any]:
    """Return the media types and their values: text, or anything for JSON."""
    data = _object(value)
    return {media: item for media, item in data.items() if isinstance(item, str) or media.endswith("json")}


def _error(value: object) -> CellError | None:
    if value is None:
        return None
    error = _object(value)
    lines = error.get("traceback")
    if not isinstance(lines, list):
        raise CellProtocolError("an error without a traceback")
    texts = cast(list[object], lines)
    return CellError(_text(error, "name"), _text(error, "value"), tuple(str(line) for line in texts))
