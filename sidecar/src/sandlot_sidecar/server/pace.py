"""How long a command keeps the next one from starting: about as long as those before it needed a core."""

from __future__ import annotations

SHORTEST, LONGEST = 0.01, 0.1
TIMES = 3  # of what the mean command used
WEIGHT = 1 / 8  # of the last command, in that mean
OUTLASTED = 3 / 4


class Pace:
    """Learns from the commands that have ended.

    Under gVisor, commands of a sandbox that wait for the same cores cost up to twice as much as one after the other,
    and their processor time counts that waiting. One that sleeps uses none, so it keeps nobody from starting.
    """

    __slots__ = ("_cpu",)

    def __init__(self) -> None:
        self._cpu = 0.0

    def ended(self, cpu: float) -> None:
        """A command has ended that used so many seconds of processor time."""
        self._cpu += (min(cpu, LONGEST) - self._cpu) * WEIGHT

    def outlasted(self) -> None:
        """One has not ended in that time: a crowd of those that sleep must not wait for each of them."""
        self._cpu *= OUTLASTED

    @property
    def seconds(self) -> float:
        """How long the end of one that has been started is waited for at most."""
        return min(LONGEST, max(SHORTEST, TIMES * self._cpu))
