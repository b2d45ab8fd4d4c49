"""A layer that several sandboxes of this machine share: the files that another sandbox had, below their own changes."""

from __future__ import annotations

import os

from . import syscalls

PLACE = "/layer"  # of the layer in a mount namespace that has nothing else


class Shared:
    """Holds the mount namespace of one layer; its file system lasts as long as a holder or a root over it."""

    def __init__(self, namespace: int) -> None:
        """`namespace`: the caller keeps it."""
        self._namespace = os.dup(namespace)
        self._directory = -1

    def clone(self) -> int:
        """Return a detached copy of the layer's mount; the caller leaves the layer's namespace. Raises OSError."""
        syscalls.setns(self._namespace, syscalls.CLONE_NEWNS)
        tree = syscalls.clone_tree(PLACE)
        if self._directory < 0:
            self._directory = os.open(PLACE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return tree

    def open(self) -> int:
        """Open the layer's directory; the caller closes it. Call `clone` before. Raises OSError."""
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._directory)

    def close(self) -> None:
        """Let go of the layer; idempotent."""
        for fd in (self._namespace, self._directory):
            if fd >= 0:
                os.close(fd)
        self._namespace = self._directory = -1
