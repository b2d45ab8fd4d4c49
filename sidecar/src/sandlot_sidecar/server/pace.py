"""Estimates how long a command should delay the next one's start: about as long as recent ones needed a core."""

from __future__ import annotations

SHORTEST, LONGEST = 0.01, 0.1
TIMES = 3  # the mean command's CPU time
WEIGHT = 1 / 8  # weight of the last command in the mean
OUTLASTED = 3 / 4


class Pace:
    """Learns from the CPU time of ended commands.

    Under gVisor, commands that compete for the same cores cost up to twice as much as in sequence, and their CPU time
    includes the contention. A command that sleeps uses none, so it delays no other.
    """

    __slots__ = ("_cpu",)

    def __init__(self) -> None:
        self._cpu = 0.0

    def ended(self, cpu: float) -> None:
        """Record the CPU time in seconds of a command that ended."""
        self._cpu += (min(cpu, LONGEST) - self._cpu) * WEIGHT

    def outlasted(self) -> None:
        """Record a command that outlasted the delay: a crowd of sleeping commands must not delay each other."""
        self._cpu *= OUTLASTED

    @property
    def seconds(self) -> float:
        """Longest delay of the next start, in seconds."""
        return min(LONGEST, max(SHORTEST, TIMES * self._cpu))
