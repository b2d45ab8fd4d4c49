"""Allows one gateway per state directory: a lock that the kernel releases when its owner dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...core.backend import BackendError


class InUse(BackendError):
    """Another live process holds the state directory; `pid` if known."""

    def __init__(self, state_dir: Path, pid: int | None) -> None:
        owner = f"the gateway with pid {pid}" if pid else "another gateway"
        super().__init__(
            f"state directory {state_dir} is in use by {owner}: end that, or choose another",
            field="state_dir",
        )
        self.pid = pid


class StateLock:
    """An exclusive flock on `{state_dir}/lock`, whose text is the owner's pid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock without waiting; a second call is harmless. Raises InUse."""
        if self._fd is not None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise InUse(self._path.parent, int(text) if text.isdigit() else None) from error
        except OSError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        # The file stays: after its removal two processes could lock two different files.
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None
