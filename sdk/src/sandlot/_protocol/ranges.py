"""Byte ranges of a file: the Range header, and the whole file's size from the response."""

from __future__ import annotations

from collections.abc import Mapping

# After the end of every file; with longer numbers the server ignores the range and sends the whole file.
LAST = 10**18 - 1


def range_header(*, offset: int, length: int | None) -> str:
    if offset < 0:
        return f"bytes={max(offset, -LAST)}"
    last = "" if length is None else str(min(offset + length - 1, LAST))
    return f"bytes={min(offset, LAST)}-{last}"


def whole_size(headers: Mapping[str, str]) -> str:
    """Return the whole file's size from a full or a partial response."""
    _, slash, total = headers.get("content-range", "").rpartition("/")
    return total if slash else headers.get("content-length", "?")
