"""A window of a file: the header that asks for it, and the whole file's size in what comes back."""

from __future__ import annotations

from collections.abc import Mapping

# Behind every file's end; a range with longer numbers is ignored, and the whole file would come.
LAST = 10**18 - 1


def range_header(*, offset: int, length: int | None) -> str:
    if offset < 0:
        return f"bytes={max(offset, -LAST)}"
    last = "" if length is None else str(min(offset + length - 1, LAST))
    return f"bytes={min(offset, LAST)}-{last}"


def whole_size(headers: Mapping[str, str]) -> str:
    """The whole file's size, told from a full or a partial answer."""
    _, slash, total = headers.get("content-range", "").rpartition("/")
    return total if slash else headers.get("content-length", "?")
