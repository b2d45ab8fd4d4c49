"""Reads the machine's processors, load and memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def machine_stats() -> dict[str, Any]:
    """Return memory in bytes and the load averages over 1, 5 and 15 minutes."""
    memory = {
        name: int(value.split()[0]) * 1024
        for name, _, value in (line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines())
        if name in ("MemTotal", "MemAvailable")
    }
    return {
        "cpu_count": cores(),
        "load": list(os.getloadavg()),
        "memory_total": memory.get("MemTotal", 0),
        "memory_available": memory.get("MemAvailable", 0),
    }
