"""Settings of core/supply.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SupplySettings:
    """Times in seconds. `max_starts` bounds the cold starts in flight, `max_waiting` the creates in the queue."""

    max_starts: int = 8
    max_waiting: int = 2000
    start_timeout: float = 60.0  # from when the backend has begun a start
    spare_seconds: float = 30.0  # how long an instance of no pool is kept for the next create
    attempts: int = 2  # failed starts after which a create fails
