"""Defines why an image cannot be prepared, by kind; each kind has one HTTP status."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The kinds of failure, which callers tell apart by `code`."""

    INVALID = "invalid"
    NOT_ALLOWED = "not_allowed"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    IN_USE = "in_use"
    WRONG_PLATFORM = "wrong_platform"
    UNSUPPORTED = "unsupported"
    NO_SPACE = "no_space"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class ImageError(Exception):
    """Raised if an image cannot be prepared or released; the message has the reason and what to do about it."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
