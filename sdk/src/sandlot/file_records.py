"""Records of what happens with files: events of a watch, and the progress of a copy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

FileEventKind = Literal["created", "modified", "attributes", "removed", "renamed", "overflow"]


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One event of a watch; `old_path` is where what was renamed has been.

    `overflow`: events may be missing, so list the watched directory again, which is `path` then.
    """

    kind: FileEventKind
    path: str
    is_dir: bool = False
    old_path: str | None = None


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How far a copy is: bytes, and files that are complete. `total_bytes` is None if it is not known before."""

    bytes: int
    total_bytes: int | None
    files: int


class TransferMeter:
    """Counts a copy of several files at once, and tells its caller, one call at a time."""

    def __init__(
        self,
        *,
        on_bytes: Callable[[int], None] | None,
        progress: Callable[[TransferProgress], None] | None,
    ) -> None:
        self.total: int | None = None
        self._on_bytes = on_bytes
        self._progress = progress
        self._bytes = self._files = 0
        self._lock = threading.Lock()  # of a blocking copy's threads

    @property
    def wants_total(self) -> bool:
        return self._progress is not None

    def count(self, size: int, *, files: int = 0) -> None:
        """Count bytes, fewer than 0 for those that are sent again, and complete files."""
        with self._lock:
            self._bytes += size
            self._files += files
            if size > 0 and self._on_bytes is not None:
                self._on_bytes(size)
            if (size > 0 or files) and self._progress is not None:
                self._progress(TransferProgress(self._bytes, self.total, self._files))


class FileMeter:
    """Counts one file of a copy."""

    def __init__(self, meter: TransferMeter) -> None:
        self._meter = meter
        self._bytes = 0

    def begins(self) -> None:
        """Count the file from its beginning: an upload may be sent again after a lost connection."""
        sent, self._bytes = self._bytes, 0
        self._meter.count(-sent)

    def add(self, size: int) -> None:
        self._bytes += size
        self._meter.count(size)

    def done(self) -> None:
        self._meter.count(0, files=1)
