"""What the local backend can be set to: how much it runs, and how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Times in seconds."""

    max_instances: int = 1000
    max_starting: int | None = None  # for pools, at once; default: the number of cores, at least 2
    max_resets: int = 100  # how often an instance is used again
    heartbeat: float = 30.0
    start_timeout: float = 60.0  # an instance that is not ready by then is ended
    end_grace: float = 0.3  # for `ended` to be told, once all in the sandbox is dead; then SIGKILL
    patience: float = 5.0  # how long a sidecar found at start may take to answer
    upkeep: float = 15.0  # between two looks at logs and overdue starts
