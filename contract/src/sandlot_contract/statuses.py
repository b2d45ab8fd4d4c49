"""Defines the statuses of a sandbox in the control API, with Prime's names."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"


TERMINAL: frozenset[Status] = frozenset({Status.TERMINATED, Status.ERROR, Status.TIMEOUT})
