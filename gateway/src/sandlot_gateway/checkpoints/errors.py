"""Errors of checkpoints."""

from __future__ import annotations


class Busy(Exception):
    """Raised when the sandbox already has a checkpoint in progress."""


class NotRestorable(Exception):
    """Raised when the tenant has no such checkpoint (`missing`), or when it is not DURABLE."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


class RestoreFailed(Exception):
    """Raised when the files could not be restored; the sandbox is unusable."""
