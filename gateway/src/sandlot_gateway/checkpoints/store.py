"""Checkpoints in one directory: a JSON document and an archive each, so that every gateway that has it sees the same.

Nothing is cached. A checkpoint that is being written has a locked `.part` file: without its lock, its gateway is dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from pathlib import Path
from typing import Literal

import msgspec

State = Literal["PENDING", "DURABLE", "FAILED", "DELETING"]

_ID = re.compile(r"cp-[0-9a-f]{24}\Z")


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """What is known of one. Times are Unix seconds, sizes bytes."""

    id: str
    tenant: str
    sandbox_id: str
    docker_image: str
    disk_size_bytes: int
    created_at: float
    updated_at: float
    state: State = "PENDING"
    parent_id: str | None = None
    team_id: str | None = None
    depth: int = 0
    stored_bytes: int | None = None  # of the archive
    occupied_bytes: int = 0  # of the files in it
    error: str | None = None


class StoreFull(Exception):
    """All checkpoints together have as many bytes as they may."""


class Store:
    """`limit`: bytes of all archives together. Methods raise OSError for what the disk does."""

    def __init__(self, directory: Path, *, limit: int) -> None:
        self._directory = directory
        self._limit = limit

    def new_id(self) -> str:
        return f"cp-{secrets.token_hex(12)}"

    def save(self, checkpoint: Checkpoint) -> None:
        """Whole or not at all."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._document(checkpoint.id)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        checkpoint.updated_at = time.time()
        fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(checkpoint))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        if not _ID.match(checkpoint_id):
            return None
        try:
            found = msgspec.json.decode(self._document(checkpoint_id).read_bytes(), type=Checkpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return self._settled(found)

    def all(self) -> list[Checkpoint]:
        """Oldest first."""
        names = [path.stem for path in self._directory.glob("cp-*.json")] if self._directory.is_dir() else []
        found = [checkpoint for name in names if (checkpoint := self.get(name)) is not None]
        return sorted(found, key=lambda checkpoint: (checkpoint.created_at, checkpoint.id))

    def begin(self, checkpoint: Checkpoint) -> Part:
        """Make its document and a locked file for its archive. Raises StoreFull."""
        if self.used() >= self._limit:
            raise StoreFull(f"checkpoints have {self.used()} bytes together, and may have {self._limit}")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._part(checkpoint.id)
        flags = os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC
        part = Part(os.open(path, flags, 0o600), path=path, room=self._limit - self.used())
        try:
            fcntl.flock(part.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.save(checkpoint)
        except BaseException:
            part.discard()
            raise
        return part

    def finish(self, checkpoint: Checkpoint, part: Part) -> None:
        """The archive is whole: on the disk before anybody hears of it."""
        os.fsync(part.fd)
        part.path.replace(self._archive(checkpoint.id))
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        checkpoint.state = "DURABLE"
        checkpoint.stored_bytes = part.size
        self.save(checkpoint)
        part.close()

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        checkpoint.state = "FAILED"
        checkpoint.error = error
        self.save(checkpoint)  # first: one without a part is taken for abandoned
        self._part(checkpoint.id).unlink(missing_ok=True)

    def open(self, checkpoint: Checkpoint) -> int:
        """Its archive, to read. Raises OSError."""
        return os.open(self._archive(checkpoint.id), os.O_RDONLY | os.O_CLOEXEC)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Its document goes last: a delete that was cut short is seen, and done again."""
        checkpoint.state = "DELETING"
        self.save(checkpoint)
        self._archive(checkpoint.id).unlink(missing_ok=True)
        self._part(checkpoint.id).unlink(missing_ok=True)
        self._document(checkpoint.id).unlink(missing_ok=True)

    def used(self) -> int:
        """Bytes of all archives, those that are being written too."""
        total = 0
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._directory):
                if entry.name.endswith((".tar.gz", ".part")):
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat().st_size
        return total

    def _settled(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """As it is, also when the gateway that worked on it is dead."""
        if checkpoint.state == "DELETING":
            self.delete(checkpoint)
            return None
        if checkpoint.state != "PENDING":
            return checkpoint
        try:
            fd = os.open(self._part(checkpoint.id), os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._without_part(checkpoint)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return checkpoint
        else:
            self.fail(checkpoint, "the gateway ended while it was written")
            return checkpoint
        finally:
            os.close(fd)

    def _without_part(self, checkpoint: Checkpoint) -> Checkpoint | None:
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            # Its writer may have been done a moment ago.
            again = msgspec.json.decode(self._document(checkpoint.id).read_bytes(), type=Checkpoint)
            if again.state != "PENDING":
                return again
        archive = self._archive(checkpoint.id)
        if not archive.exists():
            self.fail(checkpoint, "the gateway ended before it was written")
            return checkpoint
        checkpoint.state = "DURABLE"  # the archive gets its name only when it is whole
        checkpoint.stored_bytes = archive.stat().st_size
        return checkpoint

    def _document(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.json"

    def _archive(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.tar.gz"

    def _part(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.part"


class Part:
    """An archive that is being written; `room` is how many bytes it may have."""

    def __init__(self, fd: int, *, path: Path, room: int) -> None:
        self.fd = fd
        self.path = path
        self.size = 0
        self._room = room

    def write(self, data: bytes) -> None:
        """Raises StoreFull and OSError."""
        if self.size + len(data) > self._room:
            raise StoreFull("all checkpoints together have as many bytes as they may")
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.size += len(data)

    def close(self) -> None:
        """Gives the lock back; a second time does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()
