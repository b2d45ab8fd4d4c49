"""Deletes checkpoints, also one that a gateway still writes: it is gone for readers at once, its files a moment later.

A delete renames the document, then removes the files. If another gateway writes them, that one removes them when it
ends. What a gateway leaves that dies in between, the next reader removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from .errors import Deleted
from .places import Places, is_locked

_LOCKED_FOR = 2.0  # seconds; longer if its gateway is frozen, or the volume stalls
_LOOK_EVERY = 0.002  # seconds


def _lock(fd: int) -> None:
    """Lock a mark, which another call holds only while it removes some files. Raises BlockingIOError."""
    until = time.monotonic() + _LOCKED_FOR
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK_EVERY)


class Deletions:
    def __init__(self, places: Places) -> None:
        self._places = places

    def begin(self, checkpoint_id: str) -> None:
        """Delete a checkpoint durably, and remove its files unless they are being written. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):  # another delete was first
            self._places.document(checkpoint_id).rename(self._places.deleted(checkpoint_id))
            self._places.sync()
        self.finish(checkpoint_id)

    def is_deleted(self, checkpoint_id: str) -> bool:
        return self._places.deleted(checkpoint_id).exists()

    def check(self, checkpoint_id: str) -> None:
        """Raise Deleted if it was deleted."""
        if self.is_deleted(checkpoint_id):
            raise Deleted(f"checkpoint {checkpoint_id} was deleted while it was being written")

    def finish(self, checkpoint_id: str) -> None:
        """Remove the files of a deleted checkpoint, unless a gateway writes or removes them now. Raises OSError."""
        # A writer releases its file, then calls this too; it may have ended after this call found it writing.
        while self._found_writer(checkpoint_id) and not self._is_written(checkpoint_id):
            pass

    def finish_all(self) -> set[str]:
        """Remove what can be removed; return the ids of the deleted checkpoints whose files are still there."""
        left: set[str] = set()
        for path in self._places.directory.glob("cp-*.deleted"):
            self.finish(path.stem)
            if path.exists():
                left.add(path.stem)
        return left

    def _found_writer(self, checkpoint_id: str) -> bool:
        """Remove the files, and return False; return True if one of them is being written."""
        mark = self._places.deleted(checkpoint_id)
        try:
            fd = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            _lock(fd)
            if os.fstat(fd).st_nlink == 0:
                return False  # removed, and another checkpoint may have this id: a pause has its sandbox's
            if self._is_written(checkpoint_id):
                return True
            # The writer may have written the document once more, at the moment of the delete.
            for place in (self._places.archive, self._places.whole, self._places.part, self._places.document):
                place(checkpoint_id).unlink(missing_ok=True)
            for link in self._places.packs(checkpoint_id):
                link.unlink(missing_ok=True)
            mark.unlink(missing_ok=True)
            return False
        except BlockingIOError:
            return False  # another gateway removes them, and does not go on
        finally:
            os.close(fd)

    def _is_written(self, checkpoint_id: str) -> bool:
        # In this order: the lock stays with the file when a complete part becomes the archive.
        return any(map(is_locked, (self._places.part(checkpoint_id), self._places.archive(checkpoint_id))))
