"""The floors: the same command started in place, by one caller and by as many loops as there are cores."""

from __future__ import annotations

import os
import subprocess
import sys
import time

COMMAND = ["sh", "-c", "true"]

_LOOP = """
import subprocess, sys, time
end = time.monotonic() + float(sys.argv[1])
count = 0
while time.monotonic() < end:
    subprocess.run(["sh", "-c", "true"], capture_output=True, check=True)
    count += 1
print(count)
"""


def spawn_once() -> float:
    """Seconds of one `subprocess.run` of the command, with its output captured."""
    begun = time.perf_counter()
    subprocess.run(COMMAND, capture_output=True, check=True)
    return time.perf_counter() - begun


def spawn_rate(*, seconds: float) -> float:
    """Commands per second of one loop of `subprocess.run` for each core of this process, all at once."""
    loops = [
        subprocess.Popen([sys.executable, "-S", "-c", _LOOP, str(seconds)], stdout=subprocess.PIPE, text=True)
        for _ in os.sched_getaffinity(0)
    ]
    counts = [int(loop.communicate(timeout=seconds + 30)[0]) for loop in loops]
    return sum(counts) / seconds
