"""The cleaning steps of a reset; tests leave one out to see that the proof then fails."""

from __future__ import annotations

PROCESSES = "processes"  # kill all processes
ROOT = "root"  # rebuild files, mounts, devices and shared memory
IPC = "ipc"  # a new IPC namespace: System V objects and POSIX queues
HOSTNAME = "hostname"

STEPS = {PROCESSES, ROOT, IPC, HOSTNAME}
