"""Mounts snapshots read-only, unmounts them, and reads what is mounted."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MS_RDONLY = 0x1
MS_NODEV = 0x4
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MNT_DETACH = 0x2

# Options that are flags, or that say what is done anyway.
_FLAGS = frozenset({"ro", "rw", "bind", "rbind"})
_PAGE = 4096  # the longest data of mount(2), with its zero byte

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Mount:
    """What containerd says of how to mount a snapshot."""

    type: str
    source: str
    options: tuple[str, ...]


class MountError(Exception):
    """Raised if a mount or unmount fails; the message has the reason."""


def mount(mounts: Sequence[Mount], target: Path) -> None:
    """Mount a view snapshot read-only. Raises MountError."""
    if len(mounts) != 1 or mounts[0].type not in ("bind", "overlay"):
        kinds = ", ".join(one.type for one in mounts) or "none"
        raise MountError(f"the snapshotter asks for mounts of another kind than bind or overlay: {kinds}")
    wanted = mounts[0]
    if wanted.type == "bind":
        _mount(wanted.source, target, "bind", MS_BIND | MS_REC, "")
        try:
            # Takes effect only in a second call.
            _mount("none", target, "bind", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NODEV, "")
        except MountError:
            unmount(target)
            raise
        return
    options = [option for option in wanted.options if option not in _FLAGS]
    if any(option.startswith(("upperdir=", "workdir=")) for option in options):
        raise MountError("the snapshotter asks for a writable mount of a view; it would change the image")
    data = ",".join(options)
    if len(data) < _PAGE:
        _mount("overlay", target, "overlay", MS_RDONLY | MS_NODEV, data)
        return
    _mount_many(options, target)


def _mount_many(options: Sequence[str], target: Path) -> None:
    """Mount an overlay of so many layers that their paths do not fit: name them from a descriptor of their parent."""
    lower = next(option for option in options if option.startswith("lowerdir="))
    directories = lower.removeprefix("lowerdir=").split(":")
    parent = os.path.commonpath(directories)
    descriptor = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        near = ":".join(f"/proc/self/fd/{descriptor}/{os.path.relpath(name, parent)}" for name in directories)
        others = [option for option in options if option is not lower]
        data = ",".join([f"lowerdir={near}", *others])
        if len(data) >= _PAGE:
            raise MountError(f"the image has too many layers: {len(directories)}")
        _mount("overlay", target, "overlay", MS_RDONLY | MS_NODEV, data)
    finally:
        os.close(descriptor)


def _mount(source: str, target: Path, kind: str, flags: int, data: str) -> None:
    words = (os.fsencode(source), os.fsencode(target), kind.encode())
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise MountError(f"could not mount {kind} at {target}: {os.strerror(ctypes.get_errno())}")


def unmount(target: Path) -> None:
    """Take a mount away, also while files in it are open, whose readers keep them. Raises MountError."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH) != 0:
        raise MountError(f"could not unmount {target}: {os.strerror(ctypes.get_errno())}")


def mounted_below(directory: Path) -> set[Path]:
    """Return the places below a directory where something is mounted."""
    found: set[Path] = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split(" ")[4]))
        if directory in place.parents:
            found.add(place)
    return found
