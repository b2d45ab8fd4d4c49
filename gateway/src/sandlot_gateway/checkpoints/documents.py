"""The documents in a directory of checkpoints: each change of one is made under its lock, of the checkpoint that it is about.

So no gateway overwrites what another one has decided, nor the document of a later checkpoint with the same id.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.checkpoints.checkpoint import Checkpoint
from sandlot_gateway.checkpoints.errors import Deleted, Occupied
from sandlot_gateway.checkpoints.places import Places

_LOCKED_FOR = 5.0  # seconds; longer if its gateway is frozen, or the volume stalls
_LOOK_EVERY = 0.002  # seconds


class Documents:
    def __init__(self, places: Places) -> None:
        self._places = places

    def read(self, checkpoint_id: str) -> Checkpoint | None:
        return read(self._places.document(checkpoint_id))

    def create(self, checkpoint: Checkpoint) -> None:
        """Write the document of a new checkpoint. Raises Occupied while there is one with its id."""
        path = self._places.document(checkpoint.id)
        checkpoint.updated_at = time.time()
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileExistsError as error:
            if read(path) is not None:
                raise Occupied from error
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # a gateway died before it had written it
            except FileNotFoundError:
                raise Occupied from error
        try:
            # Who has the lock of a file that has the name owns the document.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _has_name(fd, path) or read(path) is not None:
                raise Occupied
            try:
                os.ftruncate(fd, 0)
                with os.fdopen(os.dup(fd), "wb") as file:
                    file.write(msgspec.json.encode(checkpoint))
                os.fsync(fd)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        except BlockingIOError as error:
            raise Occupied from error
        finally:
            os.close(fd)

    @contextmanager
    def locked(self, checkpoint: Checkpoint) -> Iterator[Checkpoint]:
        """Yield a checkpoint as its document has it, which nobody else changes in the block. Raises Deleted, OSError."""
        path = self._places.document(checkpoint.id)
        gone = Deleted(f"checkpoint {checkpoint.id} was deleted while it was being written")
        while True:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                raise gone from None
            try:
                _lock(fd)
                if not _has_name(fd, path):
                    continue  # it was changed meanwhile
                found = read(path)
                if found is None or not is_same(found, checkpoint):
                    raise gone
                yield found
                return
            finally:
                os.close(fd)

    def remove_empty(self, path: Path) -> None:
        """Remove a document that a gateway did not write before it died. Raises FileNotFoundError, OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_size == 0 and _has_name(fd, path):
                path.unlink()
        except BlockingIOError:
            return  # it is being written
        finally:
            os.close(fd)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a document that is locked."""
        checkpoint.updated_at = time.time()
        write_atomic(self._places.document(checkpoint.id), msgspec.json.encode(checkpoint), durable=True)


def is_same(one: Checkpoint, other: Checkpoint) -> bool:
    """Return whether both are of the same checkpoint, not only of one id."""
    return (one.id, one.created_at, one.files) == (other.id, other.created_at, other.files)


def read(path: Path) -> Checkpoint | None:
    """Read a document; return None if it is missing or invalid."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def names(path: Path, files: str) -> bool:
    """Return whether a document is of the checkpoint with these `files`, or may be: it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    try:
        return msgspec.json.decode(data, type=Checkpoint).files == files
    except msgspec.DecodeError:
        return bool(data)


def _has_name(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(fd: int) -> None:
    """Lock a document, which is locked only while it is changed. Raises BlockingIOError."""
    until = time.monotonic() + _LOCKED_FOR
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK_EVERY)
