"""A checkpoint that is being written into a directory; the lock of its file shows other gateways that the writer is alive."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sandlot_gateway.checkpoints.packing import Known, Packing
from sandlot_gateway.checkpoints.places import remove_files


class Part:
    """Chunks go into a pack beside the file, which becomes the manifest once that is complete.

    `admit` is called with the number of bytes before each write, and may raise; `give_back` with those of them that are not
    stored. `known`: see Packing.
    """

    def __init__(
        self,
        fd: int,
        *,
        path: Path,
        name: str,
        admit: Callable[[int], None],
        give_back: Callable[[int], None],
        known: Callable[[], Known],
    ) -> None:
        self.fd = fd
        self.path = path
        self.size = 0
        self._admit = admit
        self._give_back = give_back
        self._pack_path = path.with_name(f"{name}.pack")
        self._pack = -1
        self._packed = 0  # bytes of the pack
        self._packing = Packing(name, store=self._store, known=known)

    def write(self, data: bytes) -> None:
        """Write a piece of the archive. Raises what `admit` raises, and OSError."""
        self._count(self.size + len(data))
        self._shrink(self._packing.write(data))

    def complete(self) -> set[str]:
        """Write all that is left, and the manifest; return the packs that the archive lies in. Raises as `write` does."""
        self._shrink(self._packing.flush())
        manifest = self._packing.manifest()
        self._admit(len(manifest))
        os.ftruncate(self.fd, 0)
        _write(self.fd, manifest, 0)
        self.size += len(manifest)
        return self._packing.used()

    def sync(self) -> None:
        """Make what is written durable."""
        for fd in (self._pack, self.fd):
            if fd >= 0:
                os.fsync(fd)

    def reserve(self, size: int) -> None:
        """Have the file count as one of `size` bytes, which lie elsewhere; a later call counts instead.

        Raises what `admit` raises, and OSError.
        """
        self._count(size)

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        fds, self.fd, self._pack = (self._pack, self.fd), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def discard(self) -> None:
        """Release the files and remove them."""
        try:
            remove_files(self.path.parent)
        finally:
            self.close()

    def _store(self, data: bytes) -> None:
        if self._pack < 0:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            self._pack = os.open(self._pack_path, flags, 0o600)
        _write(self._pack, data, self._packed)
        self._packed += len(data)
        os.ftruncate(self.fd, max(0, self.size - self._packed))

    def _count(self, size: int) -> None:
        """Have both files count as `size` bytes."""
        if size > self.size:
            self._admit(size - self.size)
        os.ftruncate(self.fd, size - self._packed)
        self.size = size

    def _shrink(self, size: int) -> None:
        """Count `size` bytes no more, which earlier packs have."""
        if size:
            self._count(self.size - size)
            self._give_back(size)


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        offset += done
        view = view[done:]
