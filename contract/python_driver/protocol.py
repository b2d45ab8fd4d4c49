"""The lines of JSON between client, first process and child: their encoding, checks and limits."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Message = dict[str, Any]

TOTAL = 256 << 20  # bytes of the protocol in all, the `output_limit` of the op
LIMIT = 8 << 20  # bytes of one cell's output, unless its request says otherwise
SLACK = 6 << 20  # bytes of a cell's other messages
MAX_LINE = 64 << 20  # bytes of a line from the child or the client
MAX_VALUE, MAX_TRACEBACK = 4 << 20, 128 << 10  # bytes of an error; frameworks return objects as its value


class Corrupt(Exception):
    """The child wrote what is no message: its code has used the descriptor."""


class Lines:
    """Splits what a pipe delivers into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = b"".join(self._parts) + complete[0]
            self._parts, self._size = [], 0
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > MAX_LINE:
            raise Corrupt("it wrote a line without an end")
        return complete


def encode(message: Message | str) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def write_all(fd: int, data: bytes) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(fd, view[done:])


def is_object(value: object) -> bool:
    return isinstance(value, dict)


def is_name(value: object) -> bool:
    return value is None or isinstance(value, str)


def is_texts(value: Any) -> bool:
    return is_list(value) and all(isinstance(item, str) for item in value)


def is_list(value: object) -> bool:
    return isinstance(value, list)


def is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 1e9


def is_environment(value: Any) -> bool:
    """Return whether these are variables that a process can have; others would end the child."""
    return is_object(value) and all(
        isinstance(item, str) and "\0" not in name + item and name and "=" not in name
        for name, item in value.items()
    )


def clipped(error: Any) -> Message | None:
    """Return the child's description of an error in a form that clients can rely on."""
    if error is None:
        return None
    lines: Any = error.get("traceback", []) if is_object(error) else ()
    if not is_texts(lines):
        raise Corrupt("an error without its lines")
    kept: list[str] = []
    left = MAX_TRACEBACK
    for line in reversed(lines):  # the end says most
        kept.append(cut(line, left))
        left -= len(encode(line))
        if left <= 0:
            break
    name, value = cut(str(error.get("name")), 1024), cut(str(error.get("value")), MAX_VALUE)
    return {"name": name, "value": value, "traceback": kept[::-1]}


def cut(text: str, limit: int) -> str:
    """Return as much of the text's begin as has at most `limit` bytes in a message."""
    limit = max(0, limit)
    text = text[:limit]
    while len(encode(text)) > limit + 3:  # its quotes and the end of the line
        text = text[: len(text) * 3 // 4]
    return text
