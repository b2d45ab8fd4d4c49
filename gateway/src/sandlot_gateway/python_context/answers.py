"""Parses what the program of a Python context answers, and does not trust it: code in the sandbox can write any bytes."""

from __future__ import annotations

from typing import Any, cast

import msgspec

_MOST_JSON = 1 << 20  # bytes of an output's JSON
_DEEPEST = 64  # nesting of an output's JSON; more than clients' own limits would fail there
_OUTPUTS = (b'{"type":"display"', b'{"type":"result"')
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class CellError(msgspec.Struct):
    name: str
    value: str
    traceback: list[str]


class Answer(msgspec.Struct):
    """One line; each type of answer has some of the fields."""

    type: str
    id: str | None = None
    text: str = ""
    data: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict[str, msgspec.Raw])
    execution_count: int = 0
    status: str = ""
    error: CellError | None = None
    message: str = ""
    state_lost: bool = False
    truncated: bool = False


class NoAnswer(Exception):
    """A line that the program did not write: code wrote into the answers to its cells."""


class BadOutput(Exception):
    """An output that is not valid, as one with NaN, which no JSON has; nothing of it is shown."""


_decoder = msgspec.json.Decoder(Answer)


def parse(line: bytes) -> Answer:
    """Parse a line. Raises NoAnswer, BadOutput."""
    try:
        return _decoder.decode(line)
    except _INVALID as error:
        if line.startswith(_OUTPUTS):
            raise BadOutput from error
        raise NoAnswer("code wrote into the answers to its cells") from error


def media(data: dict[str, msgspec.Raw], *, objects: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the media types and their values: text, or JSON that does not harm who reads it. Raises BadOutput.

    `objects`: types besides those of JSON whose values need not be text.
    """
    kept: dict[str, Any] = {}
    for kind, raw in data.items():
        content = bytes(raw)
        try:
            if content.startswith(b'"'):
                kept[kind] = msgspec.json.decode(content, type=str)
            elif (kind.endswith("json") or kind in objects) and _is_harmless(content):
                kept[kind] = msgspec.Raw(content)  # which needs less memory than the objects
        except _INVALID as error:
            raise BadOutput from error
    return kept


def _is_harmless(content: bytes) -> bool:
    return len(content) <= _MOST_JSON and _is_shallow(msgspec.json.decode(content), _DEEPEST)


def _is_shallow(value: object, left: int) -> bool:
    if isinstance(value, dict):
        items = list(cast(dict[str, object], value).values())
    elif isinstance(value, list):
        items = cast(list[object], value)
    else:
        return True
    return left > 0 and all(_is_shallow(item, left - 1) for item in items)
