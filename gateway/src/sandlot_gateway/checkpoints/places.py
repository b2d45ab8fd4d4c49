"""Names the files of a checkpoint in the directory that its gateways share.

A document has the checkpoint's id. All other files lie in a directory whose name only this checkpoint has had: a later one
may have the id, since a pause has its sandbox's.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from sandlot_gateway.checkpoints.checkpoint import Checkpoint

_FILES = ".packs."  # sorts after `.json`: a copy in the order of names has the document first


class Places:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def document(self, checkpoint_id: str) -> Path:
        return self.directory / f"{checkpoint_id}.json"

    def deleted(self, checkpoint: Checkpoint) -> Path:
        """Return where the document is from a delete on, until the other files are gone."""
        name = f"{checkpoint.id}.{checkpoint.files}" if checkpoint.files else checkpoint.id
        return self.directory / f"{name}.deleted"

    def files(self, checkpoint: Checkpoint) -> Path:
        """Return the directory of a checkpoint's own."""
        assert checkpoint.files
        return self.directory / f"{checkpoint.id}{_FILES}{checkpoint.files}"

    def archive(self, checkpoint: Checkpoint) -> Path:
        """Return where the manifest of a complete archive is, or what a gateway before packs has put there."""
        if not checkpoint.files:
            return self.directory / f"{checkpoint.id}.tar.gz"
        return self.files(checkpoint) / "manifest"

    def part(self, checkpoint: Checkpoint) -> Path:
        """Return where that is while the archive is written; it is locked."""
        return (
            self.files(checkpoint) / "part" if checkpoint.files else self.directory / f"{checkpoint.id}.part"
        )

    def pack(self, checkpoint: Checkpoint, name: str) -> Path:
        """Return this checkpoint's link to a pack that its archive lies in."""
        return self.files(checkpoint) / f"{name}.pack"

    def is_written(self, checkpoint: Checkpoint) -> bool:
        """Return whether a gateway that is alive writes a checkpoint, or holds its copy in memory."""
        # In this order: the lock stays with the file when a complete part becomes the archive.
        return any(map(is_locked, (self.part(checkpoint), self.archive(checkpoint))))

    def remove(self, checkpoint: Checkpoint) -> None:
        """Remove all but the documents, which lets go of packs. Raises OSError."""
        if checkpoint.files:
            remove_files(self.files(checkpoint))
            return
        for path in (self.archive(checkpoint), self.part(checkpoint)):
            path.unlink(missing_ok=True)


def remove_files(directory: Path) -> None:
    """Remove the directory of one checkpoint's files, or one file; others may do so at the same time. Raises OSError."""
    if not files_of(directory):
        directory.unlink(missing_ok=True)
        return
    try:
        # The manifest first: a reader that finds no pack looks whether it is still there, else the archive is damaged.
        for name in sorted(os.listdir(directory), key=lambda name: name != "manifest"):
            if not name.startswith(".nfs"):  # of a file that is open here; it goes with its reader
                (directory / name).unlink(missing_ok=True)
        directory.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # the sweep removes what no document names
            raise


def id_of(path: Path) -> str:
    """Return the id of the checkpoint that a file or directory is of."""
    return path.name.partition(".")[0]


def files_of(path: Path) -> str:
    """Return the `files` of the checkpoint whose directory this is; empty for other paths."""
    return path.name.partition(_FILES)[2]


def sync(directory: Path) -> None:
    """Make new names durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_locked(path: Path) -> bool:
    """Return whether a file is there, and a gateway that is alive has its lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: one that looks is no writer for another
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
