"""Why a layer could not be written or restored, as the server answers it."""

from __future__ import annotations


class LayerError(Exception):
    """`code` is one of the contract's; the message is for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
