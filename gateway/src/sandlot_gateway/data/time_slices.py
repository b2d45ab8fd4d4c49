"""Time-slices a saturated machine between sandboxes, so that each one's processes find their caches warm.

Eight sandboxes with eight commands each, all forwarded at once, make their servers, runners and commands evict each
other from the caches at every switch: 1.6 ms of CPU a command instead of 1.35 (docs/adr/0004-saturated-cores.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

OPS_PER_CORE = 6  # commands in flight, from which on other sandboxes wait for their turn
TURN = 0.01  # seconds
LONGEST_WAIT = 0.1  # seconds; turns are shorter if many sandboxes wait


class TimeSlice:
    """One sandbox's turn, with the number of its commands in flight."""

    __slots__ = ("lane", "over", "running")

    def __init__(self, lane: str, *, running: int) -> None:
        self.lane = lane
        self.running = running
        self.over = False


class TimeSlices:
    """The sandboxes' turns: each ends when all its commands are answered, or when its time is up."""

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
        self._turns: dict[str, TimeSlice] = {}
        self._waiting: dict[str, list[asyncio.Future[TimeSlice]]] = {}

    async def enter(self, lane: str) -> TimeSlice | None:
        """Wait until a command may be forwarded to this sandbox; None at once if no core is saturated."""
        if not self._waiting and not self._wanted():
            return None
        turn = self._turns.get(lane)
        if turn is not None:
            turn.running += 1
            self._running += 1
            return turn
        if self._running < self._room and not self._waiting:
            return self._begin(lane, 1)
        begun: asyncio.Future[TimeSlice] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(lane, []).append(begun)
        return await begun

    def leave(self, turn: TimeSlice) -> None:
        """Record that a command was answered or its client has gone."""
        turn.running -= 1
        if turn.over:
            return
        self._running -= 1
        if turn.running == 0:
            # Deferred: the client often sends the sandbox's next command as soon as it has this answer.
            asyncio.get_running_loop().call_soon(self._end_if_idle, turn)

    def _begin(self, lane: str, commands: int) -> TimeSlice:
        turn = self._turns[lane] = TimeSlice(lane, running=commands)
        self._running += commands
        seconds = min(self._turn, self._longest_wait * len(self._turns) / (len(self._waiting) + 1))
        asyncio.get_running_loop().call_later(seconds, self._end, turn)
        return turn

    def _end_if_idle(self, turn: TimeSlice) -> None:
        if turn.running == 0:
            self._end(turn)

    def _end(self, turn: TimeSlice) -> None:
        if turn.over:
            return
        turn.over = True
        del self._turns[turn.lane]
        self._running -= turn.running
        while self._waiting and self._running < self._room:
            lane = next(iter(self._waiting))
            # The future of a client that has gone is cancelled.
            waiting = [begun for begun in self._waiting.pop(lane) if not begun.done()]
            if waiting:
                new = self._begin(lane, len(waiting))
                for begun in waiting:
                    begun.set_result(new)
