"""The ends that wait for the instance's lock: one that will apply cuts the grace of a reset."""

from __future__ import annotations

from ..core.instance import InstanceState, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.ends import Conditions
    from .use import Use


class WaitingEnds:
    """The conditions of these ends. A claim, reset or end that has the lock may change whether they hold."""

    def __init__(self, life: InstanceState, use: Use) -> None:
        self._life = life
        self._use = use
        self._waiting: list[Conditions] = []

    def add(self, conditions: Conditions) -> None:
        """Add an end that is about to wait."""
        self._waiting.append(conditions)
        if self._life.phase is Phase.RESETTING and self._life.ends_after_reset(**conditions):
            self._use.end_grace()

    def remove(self, conditions: Conditions) -> None:
        self._waiting.remove(conditions)

    def one_applies(self) -> bool:
        """Return whether one will end the instance after the reset that begins now."""
        return any(self._life.ends_after_reset(**conditions) for conditions in self._waiting)
