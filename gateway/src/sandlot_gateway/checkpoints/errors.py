"""Errors of checkpoints."""

from __future__ import annotations

import errno
from enum import Enum, auto


class Busy(Exception):
    """Raised when the sandbox already has a checkpoint in progress."""


class NotRestorable(Exception):
    """Raised when the tenant has no such checkpoint (`missing`), or when it is not DURABLE."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class RestoreFailed(Exception):
    """Raised when the files could not be restored; the sandbox is unusable."""


class Deleted(Exception):
    """Raised to the writer of a checkpoint that was deleted meanwhile."""


class Occupied(Exception):
    """Raised when another checkpoint with this id is being written or deleted right now."""


class Trouble(Enum):
    """What is wrong with a store."""

    DOWN = auto()  # for now: it cannot be reached, or is overloaded
    REFUSED = auto()  # until the operator changes something
    FULL = auto()


class StoreError(OSError):
    """Raised for failures of a store that is reached over the network; its text says what to do."""

    def __init__(self, text: str, *, trouble: Trouble = Trouble.DOWN) -> None:
        super().__init__(errno.ENOSPC if trouble is Trouble.FULL else errno.EIO, text)
        self.text = text
        self.trouble = trouble

    def __str__(self) -> str:
        return self.text


class Damaged(StoreError):
    """Raised when what a store has of a checkpoint is not what was written; nothing of it is restored."""

    def __init__(self, why: str) -> None:
        text = f"the checkpoint is damaged in the store ({why}): restore another one, and delete this one"
        super().__init__(text, trouble=Trouble.REFUSED)
