"""Defines cursors: where a reader is in the events of its tenant, exact at one gateway, by time at any other."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})-([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Everything up to event number `number` of the process `journal` has been read.

    `at`: the Unix time until which, by the clock of that gateway.
    """

    journal: str
    number: int
    at: float

    def __str__(self) -> str:
        return f"{self.journal}-{self.number}-{int(self.at * 1000)}"


def read_cursor(text: str) -> Cursor:
    """Read a cursor that a gateway gave out. Raises ValueError."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError("is no cursor: give one that a stream or an error named, or `oldest`")
    return Cursor(found[1], int(found[2]), int(found[3]) / 1000)
