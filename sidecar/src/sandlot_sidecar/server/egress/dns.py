"""Questions for a host's IPv4 addresses and their answers, as name servers speak (RFC 1035); no I/O."""

from __future__ import annotations

import socket

_RECURSION, _ANSWER, _TRUNCATED = 0x0100, 0x8000, 0x0200
_A, _CNAME, _IN = 1, 5, 1
_NO_SUCH_NAME = 3
_MOST_STEPS = 64  # of a name through a message, and of a name from alias to alias
_HEADER = 12


class Unusable(Exception):
    """It is no answer to this question, or one that says that the server cannot answer."""


class Truncated(Exception):
    """The answer is too long for a datagram: ask by a connection."""


class NoSuchName(Exception):
    """There is no such name."""


def question(name: str, *, number: int) -> bytes:
    """`name` as `asked_host.clean` gives it. Raises ValueError for a name that cannot be asked for."""
    labels = [label.encode("ascii") for label in name.split(".")]
    if sum(len(label) + 1 for label in labels) > 254 or not all(0 < len(label) < 64 for label in labels):
        raise ValueError("the name is too long")
    header = b"".join(each.to_bytes(2, "big") for each in (number, _RECURSION, 1, 0, 0, 0))
    asked = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return header + asked + _A.to_bytes(2, "big") + _IN.to_bytes(2, "big")


def answer(data: bytes, *, asked: bytes) -> list[str]:
    """The addresses, of the name or of what it is an alias for; none where it has none.

    Raises Unusable, Truncated and NoSuchName.
    """
    flags = int.from_bytes(data[2:4], "big")
    end = len(asked)
    same = data[:2] == asked[:2] and data[4:6] == b"\0\1"
    if not same or not flags & _ANSWER or data[_HEADER:end].lower() != asked[_HEADER:].lower():
        raise Unusable("an answer to another question")
    if flags & _TRUNCATED:
        raise Truncated
    if flags & 15 == _NO_SUCH_NAME:
        raise NoSuchName
    if flags & 15:
        raise Unusable(f"the name server cannot answer (code {flags & 15})")
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
            raise Unusable("an answer that is cut off")
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
        raise Unusable("an answer that is cut off")
    return int.from_bytes(data[at : at + 2], "big")


def _name(data: bytes, at: int) -> tuple[bytes, int]:
    """In lower case and as it would be without pointers, and where it ends. Raises Unusable."""
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
    raise Unusable("an answer with a name that is none")
