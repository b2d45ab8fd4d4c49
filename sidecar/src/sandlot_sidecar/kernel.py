"""Detects gVisor."""

from __future__ import annotations

import os


def is_gvisor() -> bool:
    """Return whether the kernel is gVisor's, which lacks this /proc file that every Linux has."""
    return not os.path.exists("/proc/self/ns/pid_for_children")


def init_is_mortal() -> bool:
    """Return whether user code can kill its sandbox's init: gVisor does not protect a PID namespace's init."""
    return is_gvisor()
