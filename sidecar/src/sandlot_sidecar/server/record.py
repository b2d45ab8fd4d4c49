"""What survives a restart of the sidecar: who owns the instance and how it ended, on disk before it counts."""

from __future__ import annotations

import json
import os

from ..core.errors import SidecarError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "claim.json"


class StoreError(SidecarError):
    """The claim could not be written to disk."""


class Record:
    """What survives a restart: the generation, the claim, and the end when there was one."""

    __slots__ = ("claim", "claimed_at", "egress", "generation", "message", "verdict")

    def __init__(self) -> None:
        self.generation = 1
        self.claim: dict[str, Any] | None = None
        self.claimed_at: float | None = None
        self.egress: dict[str, Any] | None = None  # where the owner's processes may send; none was ever set
        self.verdict: str | None = None
        self.message: str | None = None

    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def disown(self) -> None:
        """Nobody's again; not written yet."""
        self.claim = self.claimed_at = self.egress = None

    def deadline_at(self) -> float | None:
        """In Unix seconds; None: never."""
        if self.claim is None or self.claim["timeout"] is None or self.claimed_at is None:
            return None
        return self.claimed_at + self.claim["timeout"]


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
