"""Finds sockets that no process holds: gVisor keeps those that code has sent to each other in a circle."""

from __future__ import annotations

import os

from . import reaper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .namespaces import Home

_LISTENING = "0A"


def bound(home: Home) -> dict[str, str]:
    """Return what is bound in the pod's network by inode: listening TCP, UDP and named Unix sockets. Raises OSError."""
    found: dict[str, str] = {}
    for kind in ("tcp", "tcp6", "udp", "udp6", "unix"):
        try:
            lines = home.read(f"self/net/{kind}").decode("utf-8", "replace").splitlines()[1:]
        except FileNotFoundError:
            continue
        for fields in map(str.split, lines):
            if kind == "unix" and len(fields) > 7:
                found[fields[6]] = f"unix {fields[7]}"
            elif kind != "unix" and len(fields) > 9 and (kind[:3] == "udp" or fields[3] == _LISTENING):
                found[fields[9]] = f"{kind} {fields[1]}"
    return found


def left(home: Home, *, before: dict[str, str]) -> list[str]:
    """Return the bound sockets that were not there `before` and are not the sidecar's own. Raises OSError."""
    found = {inode: name for inode, name in bound(home).items() if inode not in before}
    if found:
        for inode in _held(home, reaper.server()) | _held(home, os.getpid()):
            found.pop(inode, None)
    if found:
        # The sidecar's processes go on meanwhile: one that a name query had just closed is held by nobody.
        there = bound(home)
        found = {inode: name for inode, name in found.items() if there.get(inode) == name}
    return sorted(found.values())


def _held(home: Home, pid: int) -> set[str]:
    directory = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home.proc)
    try:
        links = set[str]()
        for name in os.listdir(directory):
            try:
                links.add(os.readlink(name, dir_fd=directory))
            except FileNotFoundError:  # the descriptor of the listing itself
                continue
    finally:
        os.close(directory)
    return {link[8:-1] for link in links if link.startswith("socket:[")}
