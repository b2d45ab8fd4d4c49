"""An archive that is being written; its lock shows other gateways that the writer is alive."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


class Part:
    """`admit` is called with the number of bytes before each write, and may raise."""

    def __init__(self, fd: int, *, path: Path, admit: Callable[[int], None]) -> None:
        self.fd = fd
        self.path = path
        self.size = 0
        self._admit = admit

    def write(self, data: bytes) -> None:
        """Write a piece of the archive. Raises what `admit` raises, and OSError."""
        self._admit(len(data))
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.size += len(data)

    def reserve(self, size: int) -> None:
        """Have the file count as one of `size` bytes, which lie elsewhere; a later call counts instead.

        Raises what `admit` raises, and OSError.
        """
        if size > self.size:
            self._admit(size - self.size)
        os.ftruncate(self.fd, size)
        self.size = size

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def discard(self) -> None:
        """Release the file and remove it, not one of another writer that has its name by now."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), os.fstat(self.fd)):
                self.path.unlink()
        self.close()
