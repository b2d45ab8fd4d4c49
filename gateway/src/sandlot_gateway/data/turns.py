"""Lets the sandboxes of a saturated machine take turns, so that one's processes find their caches warm.

Eight sandboxes with eight commands each, all forwarded at once, make their servers, runners and commands evict each
other from the caches at every switch: 1.6 ms of CPU a command instead of 1.35 (docs/adr/0004-saturated-cores.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

OPS_PER_CORE = 6  # commands forwarded to those whose turn it is, from which on others wait
TURN = 0.01  # seconds
LONGEST_WAIT = 0.1  # seconds: where many wait, turns are shorter


class Turn:
    """One sandbox's turn; its commands that have not been answered yet."""

    __slots__ = ("lane", "over", "running")

    def __init__(self, lane: str, *, running: int) -> None:
        self.lane = lane
        self.running = running
        self.over = False


class Turns:
    """A turn ends when all its commands are answered, at the latest when its time is up: nobody waits for long ones."""

    def __init__(
        self,
        *,
        cores: int,
        wanted: Callable[[], bool],
        turn: float = TURN,
        longest_wait: float = LONGEST_WAIT,
    ) -> None:
        self._room = OPS_PER_CORE * cores
        self._turn = turn
        self._longest_wait = longest_wait
        self._wanted = wanted
        self._running = 0  # commands of the present turns
        self._turns: dict[str, Turn] = {}
        self._waiting: dict[str, list[asyncio.Future[Turn]]] = {}

    async def enter(self, lane: str) -> Turn | None:
        """Returns when a command may be forwarded to this sandbox; None at once where nobody need wait."""
        if not self._waiting and not self._wanted():
            return None
        turn = self._turns.get(lane)
        if turn is not None:
            turn.running += 1
            self._running += 1
            return turn
        if self._running < self._room and not self._waiting:
            return self._begin(lane, 1)
        begun: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(lane, []).append(begun)
        return await begun

    def leave(self, turn: Turn) -> None:
        """A command was answered, or its client has gone."""
        turn.running -= 1
        if turn.over:
            return
        self._running -= 1
        if turn.running == 0:
            # Not from here: the one who got this answer often sends the sandbox's next command at once.
            asyncio.get_running_loop().call_soon(self._end_if_idle, turn)

    def _begin(self, lane: str, commands: int) -> Turn:
        turn = self._turns[lane] = Turn(lane, running=commands)
        self._running += commands
        seconds = min(self._turn, self._longest_wait * len(self._turns) / (len(self._waiting) + 1))
        asyncio.get_running_loop().call_later(seconds, self._end, turn)
        return turn

    def _end_if_idle(self, turn: Turn) -> None:
        if turn.running == 0:
            self._end(turn)

    def _end(self, turn: Turn) -> None:
        if turn.over:
            return
        turn.over = True
        del self._turns[turn.lane]
        self._running -= turn.running
        while self._waiting and self._running < self._room:
            lane = next(iter(self._waiting))
            # A client that has gone leaves its future cancelled.
            waiting = [begun for begun in self._waiting.pop(lane) if not begun.done()]
            if waiting:
                new = self._begin(lane, len(waiting))
                for begun in waiting:
                    begun.set_result(new)
