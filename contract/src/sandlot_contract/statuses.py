"""What the control API says of a sandbox's life: Prime's words."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"


TERMINAL: frozenset[Status] = frozenset({Status.TERMINATED, Status.ERROR, Status.TIMEOUT})
