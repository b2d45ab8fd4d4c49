"""The error of an export or restore, as the server reports it."""

from __future__ import annotations


class LayerError(Exception):
    """Export or restore failed; `code` is one of the contract's, `message` is for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
