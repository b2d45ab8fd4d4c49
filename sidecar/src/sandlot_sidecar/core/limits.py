"""Limits on the number of ops and on the size and age of their results."""

from __future__ import annotations


class OpLimits:
    """Limits on ops; sizes in bytes, times in seconds."""

    __slots__ = (
        "max_queued", "max_running", "memory_buffer", "output_limit", "reattach_grace", "result_bytes", "result_ttl",
    )  # fmt: skip

    def __init__(
        self,
        *,
        max_running: int = 64,
        max_queued: int = 1024,
        output_limit: int = 64 << 20,
        memory_buffer: int = 256 << 10,
        result_ttl: float = 600.0,
        result_bytes: int = 64 << 20,
        reattach_grace: float = 60.0,
    ) -> None:
        self.max_running = max_running
        self.max_queued = max_queued
        self.output_limit = output_limit
        self.memory_buffer = memory_buffer
        self.result_ttl = result_ttl
        self.result_bytes = result_bytes
        self.reattach_grace = reattach_grace
