"""Keeps on disk what survives a restart of the sidecar: the owner of the instance and how it ended."""

from __future__ import annotations

import json
import os

from ..core.errors import SidecarError
from ..core.record import Record

FILE = "claim.json"


class StoreError(SidecarError):
    """The record could not be read or written."""


def load(state_dir: str) -> Record:
    """Return the record of an earlier process, or a fresh one. Raises StoreError if it cannot be read."""
    record = Record()
    try:
        with open(os.path.join(state_dir, FILE), encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        return record
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read the claim record: {error}") from error
    for name in Record.__slots__:
        setattr(record, name, document.get(name, getattr(record, name)))
    return record


def store(state_dir: str, record: Record, *, durable: bool) -> None:
    """Write the record atomically; `durable`: it survives a crash of the machine. Raises StoreError."""
    path = os.path.join(state_dir, FILE)
    temporary = path + ".new"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(record.document()))  # in C; `json.dump` encodes in Python
            file.flush()
            if durable:
                os.fsync(fd)
        os.rename(temporary, path)
        if not durable:
            return
        directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"cannot write the claim record: {error}") from error


def store_next(state_dir: str, record: Record) -> None:
    """Write the record of the next generation while a reset is in progress. Raises StoreError.

    If this process ends before the reset does, its restart builds a fresh sandbox for it. A crash of the machine ends
    the sandbox, so the record is not durable.
    """
    store(state_dir, record.next_generation(), durable=False)
