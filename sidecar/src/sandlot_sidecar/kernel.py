"""Detects gVisor."""

from __future__ import annotations

import os

_gvisor: bool | None = None


def is_gvisor() -> bool:
    """Return whether the kernel is gVisor's, which lacks a file in /proc that every Linux has."""
    global _gvisor
    if _gvisor is None:  # once: later the executor has another /proc
        _gvisor = not os.path.exists("/proc/self/ns/pid_for_children")
    return _gvisor


def init_is_mortal() -> bool:
    """Return whether user code can kill its sandbox's init: gVisor does not protect a PID namespace's init."""
    return is_gvisor()
