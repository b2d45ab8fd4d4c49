"""Carries out the end of an instance that is recorded: stops what runs, takes the sandbox down, sends `ended`."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.ends import End
    from .ops import Ops
    from .sandbox import Sandbox
    from .tasks import Tasks
    from .use import Use
    from .webhooks import Webhooks

PATIENCE = 60.0  # seconds of retries of the `ended` webhook


class Ending:
    """The parts of one instance that its end needs. `tasks` outlive the request that asked for the end."""

    def __init__(self, *, use: Use, ops: Ops, sandbox: Sandbox, webhooks: Webhooks, tasks: Tasks) -> None:
        self._use = use
        self._ops = ops
        self._sandbox = sandbox
        self._webhooks = webhooks
        self._tasks = tasks
        self.finished = asyncio.Event()  # the process may exit

    async def carry_out(self, end: End, *, patience: float) -> None:
        """Take the sandbox down; return once all is dead, or at once if its start command is being stopped."""
        if end.graceful and self._use.begin_stop(end.cause, message=end.message or end.verdict):
            self._tasks.spawn(self._stop(end, patience=patience))
        else:
            await self._take_down(end, patience=patience)

    async def _stop(self, end: End, *, patience: float) -> None:
        await self._use.stopped()
        await self._take_down(end, patience=patience)

    async def _take_down(self, end: End, *, patience: float) -> None:
        await self._ops.end_all(end.cause, message=end.message or end.verdict)
        await self._sandbox.end()
        self.announce(patience=patience)

    def announce(self, *, patience: float = PATIENCE) -> None:
        """Send the `ended` webhook, then let the process exit."""
        self._tasks.spawn(self._announce(patience))

    async def _announce(self, patience: float) -> None:
        await self._webhooks.ended(patience=patience)
        await asyncio.sleep(0.05)  # the response to `end` is sent before the socket is removed
        self.finished.set()
