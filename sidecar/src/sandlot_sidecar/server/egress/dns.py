"""Builds DNS queries for IPv4 addresses and parses responses (RFC 1035); no I/O."""

from __future__ import annotations

import socket

_RECURSION, _ANSWER, _TRUNCATED = 0x0100, 0x8000, 0x0200
_A, _CNAME, _IN = 1, 5, 1
_NO_SUCH_NAME = 3
_MOST_STEPS = 64  # through a message for one name, and from alias to alias
_HEADER = 12


class Unusable(Exception):
    """The response does not match the query, or reports a server failure."""


class Truncated(Exception):
    """The response is too long for a datagram: repeat the query over TCP."""


class NoSuchName(Exception):
    """The name does not exist."""


def question(name: str, *, number: int) -> bytes:
    """Return a query for a name normalized by `asked_host.clean`. Raises ValueError for a name that is too long."""
    labels = [label.encode("ascii") for label in name.split(".")]
    if sum(len(label) + 1 for label in labels) > 254 or not all(0 < len(label) < 64 for label in labels):
        raise ValueError("the host name is too long")
    header = b"".join(each.to_bytes(2, "big") for each in (number, _RECURSION, 1, 0, 0, 0))
    asked = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return header + asked + _A.to_bytes(2, "big") + _IN.to_bytes(2, "big")


def answer(data: bytes, *, asked: bytes) -> list[str]:
    """Return the addresses of the name or of the name it is an alias for; empty if it has none.

    Raises Unusable, Truncated and NoSuchName.
    """
    flags = int.from_bytes(data[2:4], "big")
    end = len(asked)
    same = data[:2] == asked[:2] and data[4:6] == b"\0\1"
    if not same or not flags & _ANSWER or data[_HEADER:end].lower() != asked[_HEADER:].lower():
        raise Unusable("the response does not match the query")
    if flags & _TRUNCATED:
        raise Truncated
    if flags & 15 == _NO_SUCH_NAME:
        raise NoSuchName
    if flags & 15:
        raise Unusable(f"the name server reports error code {flags & 15}")
    wanted, _ = _name(data, _HEADER)
    addresses: dict[bytes, list[str]] = {}
    aliases: dict[bytes, bytes] = {}
    at = end
    for _ in range(int.from_bytes(data[6:8], "big")):
        owner, at = _name(data, at)
        kind, of = _number(data, at), _number(data, at + 2)
        size = _number(data, at + 8)
        at += 10
        if len(data) < at + size:
            raise Unusable("the response is truncated")
        if (kind, of, size) == (_A, _IN, 4):
            addresses.setdefault(owner, []).append(socket.inet_ntoa(data[at : at + 4]))
        elif (kind, of) == (_CNAME, _IN):
            aliases[owner] = _name(data, at)[0]
        at += size
    for _ in range(_MOST_STEPS):
        if wanted in addresses or wanted not in aliases:
            break
        wanted = aliases[wanted]
    return addresses.get(wanted, [])


def _number(data: bytes, at: int) -> int:
    if len(data) < at + 2:
        raise Unusable("the response is truncated")
    return int.from_bytes(data[at : at + 2], "big")


def _name(data: bytes, at: int) -> tuple[bytes, int]:
    """Return a name in lower case without compression pointers, and where it ends. Raises Unusable."""
    labels = b""
    end = -1
    for _ in range(_MOST_STEPS):
        if at >= len(data):
            break
        size = data[at]
        if size & 0xC0 == 0xC0:
            end = at + 2 if end < 0 else end
            at = _number(data, at) & 0x3FFF
        elif size & 0xC0 or len(data) < at + 1 + size or len(labels) > 255:
            break
        elif size == 0:
            return labels, at + 1 if end < 0 else end
        else:
            labels += data[at : at + 1 + size].lower()
            at += 1 + size
    raise Unusable("the response has an invalid name")
