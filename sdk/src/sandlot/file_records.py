"""Records of what happens with files: events of a watch, and the progress of a copy."""

from __future__ import annotations

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
    """Counts a copy, and tells its caller."""

    def __init__(
        self,
        *,
        on_bytes: Callable[[int], None] | None,
        progress: Callable[[TransferProgress], None] | None,
    ) -> None:
        self.total: int | None = None
        self._on_bytes = on_bytes
        self._progress = progress
        self._bytes = self._complete = self._files = 0

    @property
    def wants_total(self) -> bool:
        return self._progress is not None

    def file_begins(self) -> None:
        """Count a file from its beginning: an upload may be sent again after a lost connection."""
        self._bytes = self._complete

    def add(self, size: int) -> None:
        self._bytes += size
        if self._on_bytes is not None:
            self._on_bytes(size)
        self._tell()

    def file_done(self) -> None:
        self._files += 1
        self._complete = self._bytes
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(TransferProgress(self._bytes, self.total, self._files))
