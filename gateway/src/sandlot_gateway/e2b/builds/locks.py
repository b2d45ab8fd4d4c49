"""Locks of files, which all gateways on a directory see, and which end with their process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Lock:
    """A locked file; leaving its block, or the process's end, unlocks it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def taken(cls, path: Path, *, wait: bool, shared: bool = False) -> Lock | None:
        """Lock the file; return None if it is held and `wait` is false. Shared ones do not exclude each other."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.utime(fd)  # else a sweep could delete the file of a held lock, and another one take it anew
        return cls(fd)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
