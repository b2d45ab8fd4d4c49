"""Ends a sandbox that nobody uses and whose caller left before it got the id, also if its gateway dies meanwhile."""

from __future__ import annotations

import asyncio

from ..core import ends
from ..core.errors import ApiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .instance import Instance


class Orphan:
    """Whether such a sandbox ends is decided when its grace is over: only then is it known whether it is used."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._timer: asyncio.TimerHandle | None = None

    def left(self, sandbox_id: str, *, grace: float) -> None:
        """End the sandbox in `grace` seconds unless it is used; another call begins them anew. Raises ApiError."""
        life = self._instance.life
        if life.owned()["sandbox_id"] != sandbox_id:
            raise ApiError(409, "claimed", "this instance has another owner than the sandbox of the request")
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(grace, self._over, sandbox_id, life.record.generation)

    def _over(self, sandbox_id: str, generation: int) -> None:
        self._timer = None
        self._instance.tasks.spawn(self._end_if_unused(sandbox_id, generation))

    async def _end_if_unused(self, sandbox_id: str, generation: int) -> None:
        try:
            await self._instance.end(
                ends.ORPHANED, generation=generation, only_of=sandbox_id, only_unused=True
            )
        except ApiError:
            return  # it is used
