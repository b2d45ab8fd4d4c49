"""The floors: the same command spawned locally, by one caller and by one loop per core."""

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

# The same in a sandbox, as one op: `python3 -S -c IN_SANDBOX COUNT COMMAND...` prints the seconds of each.
# The first two spawns fill the file cache and do not count.
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
    """Run the command with `subprocess.run`, capture its output and return the seconds."""
    begun = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - begun


def spawn_rate(*, seconds: float, command: Sequence[str] = COMMAND) -> float:
    """Return the commands per second of concurrent `subprocess.run` loops, one for each core of this process."""
    loop = [sys.executable, "-S", "-c", _LOOP, str(seconds), *command]
    loops = [subprocess.Popen(loop, stdout=subprocess.PIPE, text=True) for _ in os.sched_getaffinity(0)]
    counts = [int(loop.communicate(timeout=seconds + 30)[0]) for loop in loops]
    return sum(counts) / seconds
