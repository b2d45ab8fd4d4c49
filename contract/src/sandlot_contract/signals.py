"""Parses signals as images and requests name them (SIGTERM, term, 15, SIGRTMIN+3)."""

from __future__ import annotations

import signal

_HIGHEST = 64
# As Docker and systemd count: glibc keeps 32 and 33 for itself, and musl's Python would say 35.
_REAL_TIME = {"RTMIN": 34, "RTMAX": 64}


def signal_number(value: object) -> int:
    """Return a signal's number from 1 to 64. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        number: int | None = value
    elif isinstance(value, str):
        number = _parsed(value.strip().upper())
    else:
        number = None
    if number is None or not 1 <= number <= _HIGHEST:
        raise ValueError(
            f"must be a signal's name or a number from 1 to {_HIGHEST}, such as SIGTERM, 15 or SIGRTMIN+3"
        )
    return number


def _parsed(text: str) -> int | None:
    if _is_number(text):
        return int(text)
    name = text.removeprefix("SIG")
    for sign in ("+", "-"):
        base, found, offset = name.partition(sign)
        if found and base == ("RTMIN" if sign == "+" else "RTMAX") and _is_number(offset):
            number = _REAL_TIME[base] + int(sign + offset)
            return number if number >= _REAL_TIME["RTMIN"] else None
    if name in _REAL_TIME:
        return _REAL_TIME[name]
    known = getattr(signal, f"SIG{name}", None)
    return int(known) if isinstance(known, signal.Signals) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2
