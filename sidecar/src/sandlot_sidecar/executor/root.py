"""A built root: where it is assembled, its hidden layers, and how it becomes the root of the mount namespace."""

from __future__ import annotations

import os

from . import syscalls
from .errors import SetupError

# The tmpfs is mounted over the host's /sys, since no image is stored below that.
WORK = "/sys"
ROOT = f"{WORK}/root"


class Root:
    """A built root: the descriptors of its hidden layers."""

    def __init__(self, *, upper: int, tmpfs: int, devpts: int) -> None:
        self.upper = upper
        self.tmpfs = tmpfs
        self.devpts = devpts

    def resize(self, size: int) -> None:
        """Set the size of the writable layer in bytes; raises OSError."""
        syscalls.resize_tmpfs(self.tmpfs, size)

    def close(self) -> None:
        """Close the layers' descriptors; idempotent. The mounts end with their mount namespace."""
        for fd in (self.upper, self.tmpfs, self.devpts):
            if fd >= 0:
                os.close(fd)
        self.upper = self.tmpfs = self.devpts = -1


def open_layers(*, overlay: bool, part: str) -> Root:
    """Open the hidden layers, which after `pivot` are reachable only by descriptor."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if not overlay:
        return Root(upper=-1, tmpfs=-1, devpts=os.open("/dev/pts", flags))
    return Root(
        upper=os.open(f"{part}/upper", flags),
        tmpfs=os.open(WORK, flags),
        devpts=os.open(f"{ROOT}/dev/pts", flags),
    )


def pivot() -> None:
    """Make ROOT the root of this mount namespace, and unmount the host's root."""
    try:
        syscalls.change_root(ROOT)
    except OSError as error:
        raise SetupError(f"cannot change the root: {error}; run where pivot_root is allowed") from error
