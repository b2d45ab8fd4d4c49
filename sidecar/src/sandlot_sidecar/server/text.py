"""Percent-decoding and query strings without urllib, whose import would cost every sidecar 0.3 MiB."""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import unhexlify


def unquote(raw: bytes) -> str:
    """Decode %XX; bytes that are not UTF-8 become surrogate escapes, so that every file name can be expressed."""
    if b"%" not in raw:
        return raw.decode("utf-8", "surrogateescape")
    first, *rest = raw.split(b"%")
    parts = [first]
    for item in rest:
        try:
            parts.append(unhexlify(item[:2]) if len(item) > 1 else b"%" + item)
        except BinasciiError:
            parts.append(b"%" + item)
        else:
            parts.append(item[2:])
    return b"".join(parts).decode("utf-8", "surrogateescape")


def parse_query(raw: bytes) -> dict[str, str]:
    """Parse `a=1&b=x%20y` into a dict; `+` is a space, and the last of equal names wins."""
    if not raw:
        return {}
    result: dict[str, str] = {}
    for pair in raw.replace(b"+", b" ").split(b"&"):
        name, _, value = pair.partition(b"=")
        if name:
            result[unquote(name)] = unquote(value)
    return result
