"""One record for each call that the load test made: how it is written, read back, and merged."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec
from sandlot import errors

Outcome = Literal["ok", "wrong", "refused", "infrastructure"]
TASK = "task"
BESIDE = "beside"


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Times are seconds since the run began, by one clock for all processes.

    `kind` is create, exec, write, read, delete, task for all that belongs together, or beside (loadtests/load/beside.py). `intended` is when the schedule
    wanted it: in a closed loop, and for what follows an earlier step, that is when it began. `outcome`: `wrong` is the
    code's own doing, `refused` an honest no, `infrastructure` what a trainer would mask; `verdict` says it exactly.
    """

    phase: str
    process: int
    number: int
    kind: str
    intended: float
    began: float
    ended: float
    outcome: Outcome = "ok"
    verdict: str = "exited"
    sandbox: str = ""
    message: str = ""
    queued: float = 0.0  # seconds in the server's queue, as it told
    started: float = 0.0  # seconds that a cold start took of a create, as it told
    claimed: float = 0.0  # seconds until the sidecar had taken the claim, as it told
    cpu: float = 0.0  # CPU seconds of the command, as the sidecar told
    warm: bool = False  # a create that was served from the pool

    @property
    def is_call(self) -> bool:
        """Whether the load test made it of the server by itself."""
        return self.kind not in (TASK, BESIDE)

    @property
    def latency(self) -> float:
        """As a caller feels it: from the moment it wanted the answer."""
        return self.ended - self.intended

    @property
    def service(self) -> float:
        """From the moment that the call was really made."""
        return self.ended - self.began


# Ends that a caller causes: the tasks end their sandboxes themselves, so nobody has when they hear of one of these.
_NOBODYS = frozenset({"deleted", "deadline", "idle"})


def judged(error: errors.SandlotError) -> tuple[Outcome, str]:
    """Classify an error of the SDK for the run."""
    match error:
        case errors.SandboxLost():
            lost = error.infrastructure or error.verdict in _NOBODYS
            return ("infrastructure" if lost else "wrong"), error.verdict
        case errors.Busy():
            return "refused", error.code or "busy"
        case errors.ConnectionFailed():
            return "infrastructure", "connection_failed"
        case errors.WaitTimeout():
            return "infrastructure", "wait_timeout"
        case errors.ServerError():
            return "infrastructure", error.code or "server_error"
        case errors.ApiError():
            return "wrong", error.code or type(error).__name__
        case _:
            return "infrastructure", type(error).__name__


class Journal:
    """A file of events, one JSON object a line, written as they end."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb", buffering=1 << 16)
        self._encode = msgspec.json.Encoder().encode

    def add(self, event: Event) -> None:
        self._file.write(self._encode(event) + b"\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Event]:
    """Read the events of a file. Raises msgspec.DecodeError for an invalid line."""
    decode = msgspec.json.Decoder(Event).decode
    with path.open("rb") as lines:
        for line in lines:
            yield decode(line)


def merged(parts: Iterable[Iterable[Event]]) -> Iterator[Event]:
    """All events of parts that are each in the order of their ends, in that order."""
    return heapq.merge(*parts, key=lambda event: event.ended)
