"""Processes below this one: their attributes, ends and kills."""

from __future__ import annotations

import ctypes
import os
import signal
import time


def prctl(option: int, value: int) -> None:
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return  # without it, processes that left the child's group outlive it


def descendants() -> list[int]:
    """Return all processes below this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def kill_descendants() -> None:
    """Kill all processes below this one, also those that left their group or lost their parent."""
    for _ in range(100):
        pids = descendants()
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.005)
        reap()


def reap() -> dict[int, int]:
    """Return the wait statuses of all children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status


def how_ended(status: int) -> str:
    """Return how a process ended, by its wait status."""
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        called = signal.Signals(number).name
    except ValueError:
        called = "signal"
    return f"was killed by {called} (signal {number})"
