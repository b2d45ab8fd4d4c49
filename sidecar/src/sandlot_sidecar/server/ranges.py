"""Byte ranges: the `Range` header of a download and the windows of read-file."""

from __future__ import annotations

from ..core.errors import ApiError

LARGEST = (1 << 63) - 1


def parse_range(header: str | None, *, size: int) -> tuple[int, int] | None:
    """Return (start, length) of one range; None for the whole file. Raises 416.

    Anything but a single byte range is ignored, as RFC 9110 allows.
    """
    if header is None:
        return None
    unit, _, text = header.partition("=")
    first, dash, last = text.strip().partition("-")
    if unit.strip().lower() != "bytes" or not dash or "," in text:
        return None
    if not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last)):
        return None
    if first == "":
        if last == "":
            return None
        length = min(_number(last), size)
        if length == 0:
            raise _unsatisfiable(size)
        return size - length, length
    start = _number(first)
    end = size - 1 if last == "" else min(_number(last), size - 1)
    if last != "" and _number(last) < start:
        return None
    if start >= size:
        raise _unsatisfiable(size)
    return start, end - start + 1


def _number(digits: str) -> int:
    """Parse digits, capped at the largest file offset: `int` rejects thousands of digits."""
    digits = digits.lstrip("0")
    return min(int(digits[:20] or "0"), LARGEST)


def _unsatisfiable(size: int) -> ApiError:
    headers = (("Content-Range", f"bytes */{size}"),)
    return ApiError(
        416,
        "bad_range",
        "the range is outside the file: its size is in `size`",
        field="range",
        headers=headers,
        size=size,
    )


def window(*, size: int, offset: int, length: int | None, maximum: int) -> tuple[int, int]:
    """Return (start, length) of a read-file window; a negative offset counts from the end. Raises 413.

    Without a length the whole rest of the file must fit `maximum`; with one, at most `maximum` bytes are returned.
    """
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    rest = size - start
    if length is None:
        if rest > maximum:
            message = f"{rest} bytes are over the limit of {maximum}: read a window with offset and length"
            raise ApiError(413, "too_large", message, field="length", size=size)
        return start, rest
    return start, min(length, rest, maximum)
