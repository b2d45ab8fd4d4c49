"""The program of a Python context, which runs in the sandbox, and the requests to it (docs/python-contexts.md)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec


@cache
def driver() -> str:
    """Return the program's text, an argument of `python3 -c`."""
    return files("sandlot_contract").joinpath("python_driver.py").read_text(encoding="utf-8")


def request_line(**fields: Any) -> bytes:
    """Encode a request; its first newline ends one that was cut off. Raises UnicodeEncodeError for a lone surrogate."""
    return b"\n" + msgspec.json.encode(fields) + b"\n"
