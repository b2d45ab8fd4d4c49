"""Deletes checkpoints, also one that a gateway still writes: it is gone for readers at once, its files a moment later.

A delete renames the document, then removes the files. If another gateway writes them, that one removes them when it
ends. What a gateway leaves that dies in between, the next reader removes.
"""

from __future__ import annotations

import contextlib
import logging

from .checkpoint import Checkpoint
from .documents import Documents, read
from .errors import Deleted
from .places import Places, sync

_log = logging.getLogger(__name__)


class Deletions:
    def __init__(self, places: Places, documents: Documents) -> None:
        self._places = places
        self._documents = documents

    def begin(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint durably, and remove its files unless they are being written. Raises OSError."""
        with contextlib.suppress(Deleted):  # another delete was first
            with self._documents.locked(checkpoint) as found:
                self._places.document(found.id).rename(self._places.deleted(found))
            sync(self._places.directory)
        self.finish(checkpoint)

    def check(self, checkpoint: Checkpoint) -> None:
        """Raise Deleted if it was deleted."""
        if self._places.deleted(checkpoint).exists():
            raise Deleted(f"checkpoint {checkpoint.id} was deleted while it was being written")

    def finish(self, checkpoint: Checkpoint) -> None:
        """Remove the files of a deleted checkpoint, unless a gateway writes them now. Raises OSError."""
        mark = self._places.deleted(checkpoint)
        # Its writer releases its file, then calls this too.
        if not mark.exists() or self._places.is_written(checkpoint):
            return
        self._places.remove(checkpoint)
        if not checkpoint.files:  # its writer, of an older gateway, may have written the document once more
            with contextlib.suppress(Deleted), self._documents.locked(checkpoint):
                self._places.document(checkpoint.id).unlink()
        mark.unlink(missing_ok=True)

    def finish_all(self, checkpoint_id: str = "cp-") -> list[Checkpoint]:
        """Remove what can be removed; return the deleted checkpoints whose files are still there.

        `checkpoint_id`: only of that one.
        """
        left: list[Checkpoint] = []
        for path in self._places.directory.glob(f"{checkpoint_id}*.deleted"):
            found = read(path)
            if found is not None:
                try:
                    self.finish(found)
                except OSError as error:  # one checkpoint must not keep all others from being read
                    _log.warning("files of the deleted checkpoint %s are still there: %s", found.id, error)
                if path.exists():
                    left.append(found)
        return left
