"""Remembers up to a million op ids in 8 bytes each, so that an id whose result is gone never runs again."""

from __future__ import annotations

from array import array

FIRST = 256
GENERATIONS = 8


class IdMemory:
    """Generations of open-addressed tables; when the newest fills up, the oldest is dropped.

    At least the last `capacity` ids are known. At a million ids, two of them share their 8-byte hash with a
    probability of 1 in 10^13; the later one would be rejected as expired, never run twice.
    """

    __slots__ = ("_count", "_each", "_tables")

    def __init__(self, *, capacity: int) -> None:
        self._each = max(1, capacity // GENERATIONS)
        self._count = 0
        self._tables = [array("Q", bytes(8 * FIRST))]  # the newest is last

    @staticmethod
    def _hash(op_id: str) -> int:
        """Hash the id with Python's per-process key, so that no client can choose two ids that collide."""
        return hash(op_id) & 0xFFFFFFFFFFFFFFFF or 1  # 0 marks an empty slot

    @staticmethod
    def _place(table: array[int], value: int) -> int:
        """Return the index of the value, or of the empty slot where it belongs."""
        mask = len(table) - 1
        index = value & mask
        while table[index] not in (0, value):
            index = (index + 1) & mask
        return index

    def add(self, op_id: str) -> None:
        """Remember an id."""
        value = self._hash(op_id)
        if self._count >= self._each:
            self._tables = [*self._tables[-GENERATIONS:], array("Q", bytes(8 * FIRST))]
            self._count = 0
        newest = self._tables[-1]
        if 2 * self._count >= len(newest):
            grown = array("Q", bytes(16 * len(newest)))
            for item in newest:
                if item:
                    grown[self._place(grown, item)] = item
            self._tables[-1] = newest = grown
        place = self._place(newest, value)
        if not newest[place]:
            newest[place] = value
            self._count += 1

    def __contains__(self, op_id: str) -> bool:
        value = self._hash(op_id)
        return any(table[self._place(table, value)] for table in reversed(self._tables))
