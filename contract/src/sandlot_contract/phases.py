"""What an instance's state document says of its life, and why it is sent. Every sidecar imports this."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    STARTING = "starting"
    WARM = "warm"  # it has run a command, and can be claimed
    CLAIMED = "claimed"
    ENDED = "ended"
    FAILED = "failed"


class Event(StrEnum):
    """Of a webhook."""

    READY = "ready"
    HEARTBEAT = "heartbeat"
    CLAIMED = "claimed"
    ENDED = "ended"
