"""A parallel worker has its own mounts and control groups, so that its leak checks see all of its own and no others.

The same as a container's: a mount namespace, and a cgroup namespace whose root is a group of the worker's. Needs root,
and version 1 of control groups, where a group may hold processes and groups; without either the tests share them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.executor import syscalls

CGROUPS = Path("/sys/fs/cgroup")
# The hierarchies that Sandlot uses, by directory: their type and options to mount them.
HIERARCHIES = {
    **{name: ("cgroup", name) for name in ("memory", "pids", "cpu", "cpuacct", "cpu,cpuacct", "freezer")},
    "unified": ("cgroup2", None),
}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the process that has the workers."""
    node.workerinput["cgroup"] = f"sandlot-tests-{os.getpid()}-{node.gateway.id}"


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None or os.geteuid() != 0 or "SANDLOT_TEST_CLUSTER" in os.environ:
        return  # on a cluster: its nodes' containers and control groups are the machine's
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    if not os.access(CGROUPS / "memory" / "cgroup.procs", os.W_OK):
        return
    places = list(hierarchies())
    for place in places:
        (place / worker["cgroup"]).mkdir()
        (place / worker["cgroup"] / "cgroup.procs").write_text(str(os.getpid()))
    syscalls.unshare(syscalls.CLONE_NEWCGROUP)
    for place in places:
        kind, options = HIERARCHIES[place.name]
        syscalls.umount(str(place))
        syscalls.mount("cgroup", str(place), kind, 0, options)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The workers are gone: what they made goes too, and what a crashed one left in it."""
    if hasattr(config, "workerinput") or os.geteuid() != 0:
        return
    for place in hierarchies():
        for made in place.glob(f"sandlot-tests-{os.getpid()}-*"):
            for directory, _, _ in os.walk(made, topdown=False):
                with contextlib.suppress(OSError):  # a process that was left holds it
                    os.rmdir(directory)


def hierarchies() -> Iterator[Path]:
    for name in HIERARCHIES:
        place = CGROUPS / name
        if place.is_mount() and not place.is_symlink():
            yield place
