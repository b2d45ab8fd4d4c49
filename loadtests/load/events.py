"""Events, one for each call of the load test: writes, reads and merges them."""

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
PODS_EXEC = "pods_exec"


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One call. Times are seconds since the run began, by one clock for all processes.

    `kind` is create, exec, write, read, delete, task for all that belongs together, beside
    (loadtests/load/beside.py), or pods_exec, of callers beside the phase's own. `intended` is when the schedule wanted it: in a closed loop, and for what follows an
    earlier step, that is when it began. `outcome`: `wrong` is the code's own doing, `refused` an honest no,
    `infrastructure` what a trainer would mask; `verdict` says it exactly.
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
    queued: float = 0.0  # seconds in the server's queue, by the server
    started: float = 0.0  # seconds of the create in a cold start, by the server
    claimed: float = 0.0  # seconds until the sidecar had accepted the claim, by the server
    cpu: float = 0.0  # CPU seconds of the command, by the sidecar
    warm: bool = False  # a create from the warm pool
    image: str = ""  # a create's, where each task has one

    @property
    def is_call(self) -> bool:
        """True for a single call to the server."""
        return self.kind not in (TASK, BESIDE, PODS_EXEC)

    @property
    def latency(self) -> float:
        """Seconds from the intended start, as a caller experiences it."""
        return self.ended - self.intended

    @property
    def service(self) -> float:
        """Seconds from the actual start of the call."""
        return self.ended - self.began


# Verdicts of ended sandboxes. Tasks end their own sandboxes, so an error with one of these counts as infrastructure.
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
    """A file of events, one JSON object per line, in the order of their ends."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb", buffering=1 << 16)
        self._encode = msgspec.json.Encoder().encode

    def add(self, event: Event) -> None:
        self._file.write(self._encode(event) + b"\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def write(events: Iterable[Event], path: Path) -> None:
    """Write a file of events, in the order of their ends."""
    journal = Journal(path)
    for event in sorted(events, key=lambda each: each.ended):
        journal.add(event)
    journal.close()


def read(path: Path) -> Iterator[Event]:
    """Read the events of a file. Raises msgspec.DecodeError for an invalid line."""
    decode = msgspec.json.Decoder(Event).decode
    with path.open("rb") as lines:
        for line in lines:
            yield decode(line)


def merged(parts: Iterable[Iterable[Event]]) -> Iterator[Event]:
    """Merge parts that are each sorted by the events' ends."""
    return heapq.merge(*parts, key=lambda event: event.ended)
