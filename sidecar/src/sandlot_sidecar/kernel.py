"""Whose kernel this is."""

from __future__ import annotations

import os


def is_gvisor() -> bool:
    """Whether it is gVisor's, of this pod alone: told by a file that every Linux has."""
    return not os.path.exists("/proc/self/ns/pid_for_children")


def init_is_mortal() -> bool:
    """Whether code can kill its sandbox's init: gVisor does not protect the PID 1 of a namespace from what runs in it."""
    return is_gvisor()
