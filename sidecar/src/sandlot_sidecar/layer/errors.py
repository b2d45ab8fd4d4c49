"""The error of an export or restore, as the server reports it."""

from __future__ import annotations

# What the files of the sandbox cause, and the exit status that says so once the archive has begun.
BY_FILES = {"too_large": 3, "unreadable": 4}


class LayerError(Exception):
    """Export or restore failed; `code` is one of the contract's, `message` is for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
