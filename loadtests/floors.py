"""The floors: the same command started in place, by one caller and by as many loops as there are cores."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

COMMAND = ("sh", "-c", "true")

_LOOP = """
import subprocess, sys, time
end = time.monotonic() + float(sys.argv[1])
count = 0
while time.monotonic() < end:
    subprocess.run(sys.argv[2:], capture_output=True, check=True)
    count += 1
print(count)
"""

# The same in a sandbox, as an op of its own: `python3 -S -c IN_SANDBOX COUNT COMMAND...` prints the seconds of each.
# The first two open files that later ones find in the cache.
IN_SANDBOX = """
import json, subprocess, sys, time
times = []
for _ in range(int(sys.argv[1]) + 2):
    begun = time.perf_counter()
    subprocess.run(sys.argv[2:], capture_output=True, check=True)
    times.append(time.perf_counter() - begun)
print(json.dumps(times[2:]))
"""


def spawn_once(command: Sequence[str] = COMMAND) -> float:
    """Seconds of one `subprocess.run` of the command, with its output captured."""
    begun = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begun


def spawn_rate(*, seconds: float, command: Sequence[str] = COMMAND) -> float:
    """Commands per second of one loop of `subprocess.run` for each core of this process, all at once."""
    loop = [sys.executable, "-S", "-c", _LOOP, str(seconds), *command]
    loops = [subprocess.Popen(loop, stdout=subprocess.PIPE, text=True) for _ in os.sched_getaffinity(0)]
    counts = [int(loop.communicate(timeout=seconds + 30)[0]) for loop in loops]
    return sum(counts) / seconds
