"""Writes answers with a length, also ones that break off."""

from __future__ import annotations

import asyncio
import json

from tests.sdk.service.requests import Headers


def answer(writer: asyncio.StreamWriter, status: int, document: object, headers: Headers) -> bool:
    """Whether the connection can be used again."""
    raw(writer, status, json.dumps(document).encode(), {"Content-Type": "application/json", **headers})
    return True


def raw(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: Headers, *, missing: int = 0
) -> None:
    """`missing`: so many bytes are announced and do not come."""
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    writer.write(
        f"HTTP/1.1 {status} Some\r\nContent-Length: {len(body) + missing}\r\n{lines}\r\n".encode() + body
    )
