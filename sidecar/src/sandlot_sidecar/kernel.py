"""Whose kernel this is."""

from __future__ import annotations

import os


def is_gvisor() -> bool:
    """Whether it is gVisor's, of this pod alone: told by a file that every Linux has."""
    return not os.path.exists("/proc/self/ns/pid_for_children")
