"""Parses a sidecar's JSON, in which user code has a say: names of files need not be UTF-8, and come as lone surrogates."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON
from sandlot_gateway.data.errors import WireError


def parse(data: bytes) -> Any:
    """Return the document, with U+FFFD for what is not UTF-8. Raises WireError.

    Without that a file's name would make its sandbox look lost.
    """
    try:
        return msgspec.json.decode(data)
    except NOT_JSON:
        pass
    try:
        return _cleaned(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise WireError(f"the sidecar's answer is not JSON: {error}") from error


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(each) for name, each in value.items()}
    return value


def _whole(text: str) -> str:
    """Return text that can be encoded."""
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
