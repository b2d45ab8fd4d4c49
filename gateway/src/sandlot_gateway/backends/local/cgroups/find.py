"""Chooses the version of control groups that this process may write."""

from __future__ import annotations

import os

from .base import NAME, Cgroups, NoCgroups, make
from .mounts import Hierarchy, hierarchies
from .v1 import CgroupsV1
from .v2 import settle

_HOW = (
    "limits: no writable cgroup, so rlimits are used; run the gateway as root, or as an ordinary user with "
    "`systemd-run --user --scope -p Delegate=yes`"
)


def find_cgroups() -> Cgroups:
    """Choose version 2 if its memory controller is usable, else version 1, else none; `notes` says what is missing.

    On version 2 this may move the calling process into a group of its own below the current one.
    """
    found = hierarchies()
    for hierarchy in found:
        if hierarchy.v2 and (cgroups := settle(hierarchy)) is not None:
            return cgroups
    writable = [hierarchy for hierarchy in found if not hierarchy.v2 and _writable(hierarchy)]
    if any("memory" in hierarchy.controllers or "pids" in hierarchy.controllers for hierarchy in writable):
        return CgroupsV1(
            writable + [hierarchy for hierarchy in found if hierarchy.v2 and _takes_groups(hierarchy)]
        )
    return NoCgroups([_HOW])


def _writable(hierarchy: Hierarchy) -> bool:
    return bool(hierarchy.controllers & {"memory", "pids", "cpu", "cpuacct"}) and _takes_groups(hierarchy)


def _takes_groups(hierarchy: Hierarchy) -> bool:
    try:
        make(hierarchy.mount / NAME)
    except OSError:
        return False
    # It may exist and belong to another user.
    return os.access(hierarchy.mount / NAME, os.W_OK)
