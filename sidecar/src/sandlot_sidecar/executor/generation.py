"""A generation of the sandbox: its root and its init."""

from __future__ import annotations

import os

from . import syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .init import Init
    from .namespaces import Home
    from .root import Root

_ENTERED = (("mnt", syscalls.CLONE_NEWNS), ("uts", syscalls.CLONE_NEWUTS), ("ipc", syscalls.CLONE_NEWIPC))


class Generation:
    """A built root with its running init."""

    def __init__(self, root: Root, init: Init, *, number: int, device: int, shm: int) -> None:
        """Set `number`, of the root's part in the store, `device`, the st_dev of files in the writable layer.

        `shm`: the size of /dev/shm.
        """
        self.root = root
        self.init = init
        self.number = number
        self.device = device
        self.shm = shm


class Place:
    """The mount, UTS and IPC namespaces that the executor is in now, to enter them again."""

    def __init__(self, home: Home) -> None:
        self._fds = {
            kind: os.open(f"self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home.proc)
            for name, kind in _ENTERED
        }

    def enter(self) -> None:
        """Enter them. A failure ends the executor, which would otherwise go on in the wrong ones."""
        try:
            for kind, fd in self._fds.items():
                syscalls.setns(fd, kind)
            os.chdir("/")
        except OSError as error:
            raise RuntimeError(f"cannot enter the sandbox's namespaces: {error}") from error

    def keep_mounts(self) -> None:
        """Close all descriptors but the one of the mount namespace."""
        for kind in [kind for kind in self._fds if kind != syscalls.CLONE_NEWNS]:
            os.close(self._fds.pop(kind))

    def close(self) -> None:
        """Close the descriptors; a namespace without processes ends then."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
