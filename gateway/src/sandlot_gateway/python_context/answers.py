"""Parses what the program of a Python context answers, and does not trust it: code in the sandbox can write any bytes."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, cast

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON

_MOST_TYPES = 64  # of one output; a line has room for a million, which would need 100 MB
_MOST_TRACEBACK = 1 << 20  # bytes of its JSON; the program sends less
_MOST_JSON = 1 << 20  # bytes of an output's JSON
_DEEPEST = 64  # nesting of an output's JSON; more than clients' own limits would fail there
_OUTPUTS = (b'{"type":"display"', b'{"type":"result"')


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


class _Line(msgspec.Struct):
    """An answer, of which nothing is parsed that may have many parts."""

    type: str
    id: str | None = None
    text: str = ""
    data: msgspec.Raw = msgspec.Raw()
    execution_count: int = 0
    status: str = ""
    error: msgspec.Raw = msgspec.Raw()
    message: str = ""
    state_lost: bool = False
    truncated: bool = False


class _Error(msgspec.Struct):
    name: str
    value: str
    traceback: msgspec.Raw


class NoAnswer(Exception):
    """A line that the program did not write: code wrote into the answers to its cells."""


class BadOutput(Exception):
    """An output that is not valid, as one with NaN, which no JSON has; nothing of it is shown."""


class _Type(str):
    """A media type; a type of its own, so that the decoder asks for each one and can be stopped."""


_decoder = msgspec.json.Decoder(_Line)
_error_decoder = msgspec.json.Decoder(_Error | None)


def parse(line: bytes, wanted: Container[str]) -> Answer:
    """Parse a line; the parts of one whose id is not wanted only so far that they are JSON. Raises NoAnswer, BadOutput."""
    try:
        found = _decoder.decode(line)
        answer = Answer(
            found.type,
            found.id,
            text=found.text,
            execution_count=found.execution_count,
            status=found.status,
            message=found.message,
            state_lost=found.state_lost,
            truncated=found.truncated,
        )
        if found.id is not None and found.id in wanted:
            answer.data = _types(memoryview(found.data))
            answer.error = _error(memoryview(found.error))
        return answer
    except NOT_JSON as error:
        if line.startswith(_OUTPUTS):
            raise BadOutput from error
        raise NoAnswer("code wrote into the answers to its cells") from error


def _types(content: memoryview) -> dict[str, msgspec.Raw]:
    left = _MOST_TYPES

    def one(_: type, name: str) -> _Type:
        nonlocal left
        left -= 1
        if left < 0:
            raise msgspec.ValidationError("too many media types")
        return _Type(name)

    if not content:
        return {}
    return cast(
        dict[str, msgspec.Raw], msgspec.json.decode(content, type=dict[_Type, msgspec.Raw], dec_hook=one)
    )


def _error(content: memoryview) -> CellError | None:
    error = _error_decoder.decode(content) if content else None
    if error is None:
        return None
    lines = memoryview(error.traceback)
    if len(lines) > _MOST_TRACEBACK:
        raise msgspec.ValidationError("too long")
    return CellError(error.name, error.value, msgspec.json.decode(lines, type=list[str]))


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
        except NOT_JSON as error:
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
