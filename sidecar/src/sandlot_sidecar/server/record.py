"""Keeps on disk what survives a restart of the sidecar: who owns the instance and how it ended."""

from __future__ import annotations

import json
import os

from ..core.errors import SidecarError
from ..core.record import Record

FILE = "claim.json"


class StoreError(SidecarError):
    """The claim could not be written to disk."""


def load(state_dir: str) -> Record:
    """The record of an earlier process, or a fresh one. Raises StoreError when it cannot be read."""
    record = Record()
    try:
        with open(os.path.join(state_dir, FILE), encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        return record
    except (OSError, ValueError) as error:
        raise StoreError(f"the record of the claim cannot be read: {error}") from error
    for name in Record.__slots__:
        setattr(record, name, document.get(name))
    return record


def store(state_dir: str, record: Record, *, durable: bool) -> None:
    """Write the record whole or not at all; `durable`: it survives a crash of the machine. Raises StoreError."""
    path = os.path.join(state_dir, FILE)
    temporary = path + ".new"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(record.document(), file)
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
        raise StoreError(f"the claim cannot be written: {error}") from error
