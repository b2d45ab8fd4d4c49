"""Reads the state of all files that a sandbox can write: names, types, modes, owners, xattrs and contents."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .root import Root

# A fresh sandbox has some dozens of entries: a snapshot of this size differs already and need not be complete.
MAX_ENTRIES = 5000
MAX_CONTENT = 64 << 10
UPPER, DEVICES = "upper", "dev"
# Directories of the hidden tmpfs to skip: the kernel's own, and mount points.
_NOT_READ = frozenset(("work", "store", UPPER))
# xattrs that overlayfs itself sets.
_OVERLAYS = ("trusted.overlay.", "user.overlay.")

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def take(root: Root) -> dict[str, Any]:
    """Return entries by path: `upper/` (the writable layer), `layers/` (those below), `dev/` (with shared memory).

    Raises OSError.
    """
    return {**layers(root), **devices()}


def layers(root: Root) -> dict[str, Any]:
    """Return the entries of the writable layer and of those below. Raises OSError."""
    found: dict[str, Any] = {}
    try:
        _tree(found, UPPER, root.upper)
        _tree(found, "layers", root.tmpfs, leave=_NOT_READ)
    finally:
        os.chdir("/")
    return found


def devices() -> dict[str, Any]:
    """Return the entries of /dev. Raises OSError."""
    found: dict[str, Any] = {}
    directory = os.open("/dev", _DIRECTORY)
    try:
        _tree(found, DEVICES, directory)
    finally:
        os.close(directory)
        os.chdir("/")
    return found


def _tree(found: dict[str, Any], path: str, top: int, *, leave: frozenset[str] = frozenset()) -> None:
    """Read a tree by names relative to the working directory: xattr calls take no directory descriptor.

    One chdir serves the whole tree: under gVisor each system call costs as much as a hundred lines of this.
    """
    os.fchdir(top)
    found[path] = _entry(".")
    below = [""]
    while below:
        directory = below.pop()
        for name in sorted(os.listdir(directory or ".")):
            if not directory and name in leave:
                continue
            if len(found) >= MAX_ENTRIES:
                return
            inner = f"{directory}{name}"
            entry = found[f"{path}/{inner}"] = _entry(inner)
            if stat.S_ISDIR(entry[0]):
                below.append(f"{inner}/")


def _entry(name: str) -> tuple[Any, ...]:
    info = os.lstat(name)
    content: Any = None
    if stat.S_ISLNK(info.st_mode):
        content = os.readlink(name)
    elif stat.S_ISREG(info.st_mode):
        content = info.st_size, _read(name)
    return info.st_mode, info.st_uid, info.st_gid, info.st_rdev, content, _attributes(name)


def _read(name: str) -> bytes:
    fd = os.open(name, _FILE)
    try:
        return os.read(fd, MAX_CONTENT)
    finally:
        os.close(fd)


def _attributes(name: str) -> dict[str, bytes]:
    try:
        names = os.listxattr(name, follow_symlinks=False)
        return {
            each: os.getxattr(name, each, follow_symlinks=False)
            for each in names
            if not each.startswith(_OVERLAYS)
        }
    except OSError:  # the file system has no xattrs
        return {}
