"""Asks for the preparation of the next generation once the sandbox is idle; without an owner, at once for a check.

Preparing takes the CPU time of a sandbox's start, on the sandbox's own cores: an owner's commands should not wait for it.
The check takes a twentieth of that, which a claim with another image would take else.
"""

from __future__ import annotations

import asyncio

from ..core.errors import SidecarError
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.record import Record
    from .sandbox import Sandbox

IDLE = 0.2  # seconds without a command
LATEST = 3.0  # seconds after which it asks although the owner is busy: commands this long hardly notice


class Ahead:
    """A check at the beginning of a use, one timer, and what it asks for then."""

    def __init__(self, sandbox: Sandbox, *, idle: Callable[[], float]) -> None:
        """`idle`: returns for how many seconds the owner has run nothing."""
        self._sandbox = sandbox
        self._idle = idle
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: list[asyncio.Task[None]] = []
        self._latest = 0.0

    def begin(self, record: Record) -> None:
        """Begin to wait for an idle moment."""
        self.stop()
        if record.claim is None and self._sandbox.takes_images:
            self._asking.append(self._tasks.spawn_quiet(self._check()))
        if record.generation > 1:  # many pods have one owner only, and would pay for nothing
            self._latest = self._loop.time() + LATEST
            self._timer = self._loop.call_later(IDLE, self._look)

    def stop(self) -> None:
        """Stop waiting, and ask for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._asking:
            task.cancel()
        self._asking.clear()

    def _look(self) -> None:
        if self._idle() >= IDLE or self._loop.time() >= self._latest:
            self._timer = None
            # A failure is in the executor's log already, or is its end.
            self._asking.append(self._tasks.spawn_quiet(self._sandbox.prepare_reset()))
        else:
            self._timer = self._loop.call_later(IDLE, self._look)

    async def _check(self) -> None:
        try:
            await self._sandbox.check()
        except SidecarError:
            return  # a claim's image is laid in new namespaces then; the next generation is prepared all the same
