"""Defines the phases and events in an instance's state document. Every sidecar imports this."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    STARTING = "starting"
    WARM = "warm"  # has run a command, and can be claimed
    CLAIMED = "claimed"
    ENDED = "ended"
    FAILED = "failed"


class Event(StrEnum):
    """The reason of a webhook."""

    READY = "ready"
    HEARTBEAT = "heartbeat"
    CLAIMED = "claimed"
    ENDED = "ended"
