"""Tells which platform this node is of."""

from __future__ import annotations

import platform

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def own_platform() -> str:
    """Return the platform as images name it, such as linux/amd64."""
    machine = platform.machine()
    return f"linux/{_MACHINES.get(machine, machine)}"
