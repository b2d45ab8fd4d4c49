"""Names the files of a checkpoint in the directory that its gateways share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class Places:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def document(self, checkpoint_id: str) -> Path:
        return self.directory / f"{checkpoint_id}.json"

    def archive(self, checkpoint_id: str) -> Path:
        """Return where the manifest of a complete archive is."""
        return self.directory / f"{checkpoint_id}.manifest"

    def whole(self, checkpoint_id: str) -> Path:
        """Return where a gateway before packs has put a complete archive."""
        return self.directory / f"{checkpoint_id}.tar.gz"

    def part(self, checkpoint_id: str) -> Path:
        """Return where the manifest is while the archive is written; it is locked."""
        return self.directory / f"{checkpoint_id}.part"

    def deleted(self, checkpoint_id: str) -> Path:
        """Return where the document is from a delete on, until the other files are gone."""
        return self.directory / f"{checkpoint_id}.deleted"

    def pack(self, checkpoint_id: str, name: str) -> Path:
        """Return this checkpoint's link to a pack that its archive lies in."""
        return self.directory / f"{checkpoint_id}.{name}.pack"

    def packs(self, checkpoint_id: str) -> Iterator[Path]:
        return self.directory.glob(f"{checkpoint_id}.*.pack")

    def sync(self) -> None:
        """Make new names durable."""
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def is_locked(path: Path) -> bool:
    """Return whether a file is there, and a gateway that is alive has its lock."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
