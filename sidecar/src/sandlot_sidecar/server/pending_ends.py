"""Ops whose end waits: for the executor to tell why it came, or for what is left of their processes to be dead."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..core.op import Action, Op
    from .diagnosis import OpDiagnosis
    from .tasks import Tasks

monotonic = time.monotonic
PATIENCE = 10.0  # seconds for an op to settle: less than one, where nothing keeps the init from ending


class PendingEnds:
    """Reports the end of each wait to `move`. `tasks` are the ones of all ops."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        reasons: OpDiagnosis,
        tasks: Tasks,
        move: Callable[[Op, Action], None],
    ) -> None:
        self._loop = loop
        self._reasons = reasons
        self._tasks = tasks
        self._move = move

    def explain(self, op: Op) -> None:
        """Ask the executor why the op ended."""
        self._tasks.spawn(self._explain(op))

    async def _explain(self, op: Op) -> None:
        self._move(op, await self._reasons.explain(op))

    def expect(self, op: Op) -> None:
        """Wait until the op is settled, for PATIENCE at most."""
        self._loop.call_later(PATIENCE, self._settled, op)

    def _settled(self, op: Op) -> None:
        """End an op if it is not settled yet: what keeps the init from ending must not keep its caller."""
        self._move(op, op.settled(now=monotonic()))
