"""The steps by which a reset cleans, by name: tests leave one out, and see that the proof then fails."""

from __future__ import annotations

PROCESSES = "processes"  # all that ran is killed
ROOT = "root"  # files, mounts, devices and shared memory are made anew
IPC = "ipc"  # System V's objects and POSIX queues are in a namespace of their own, made anew
HOSTNAME = "hostname"

STEPS = {PROCESSES, ROOT, IPC, HOSTNAME}
