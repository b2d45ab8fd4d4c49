"""How much of a JSON text is in no string: a byte of it can take 50 bytes of memory as an object, one of a string few."""

from __future__ import annotations


def outside_strings(text: bytes, *, most: int) -> int:
    """Return the number of bytes that are in no string, or any number above `most` if it is above that."""
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    separators = plain.count(b'"') // 2 - 1  # between so many strings
    return separators if separators > most else sum(map(len, plain.split(b'"')[::2]))
