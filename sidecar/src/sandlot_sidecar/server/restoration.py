"""Whether the files of a checkpoint are still to come into a claimed sandbox: until then nothing runs in it."""

from __future__ import annotations

import asyncio
import os

from ..core.errors import ApiError
from .tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 60.0  # seconds until the archive begins to come; then its gateway is taken for dead
MARK = "restored"  # a file of the state directory: a sidecar that is started again knows that they are there


class Restoration:
    """`end` gives the sandbox its end (verdict start_failed); `ready` is called when the files are there."""

    def __init__(
        self, *, state_dir: str, end: Callable[[str], Awaitable[None]], ready: Callable[[], None]
    ) -> None:
        self._mark = os.path.join(state_dir, MARK)
        self._end = end
        self._ready = ready
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self.awaited = False
        self._begun = False

    def expect(self) -> None:
        """The claim says that files come."""
        self.awaited = True
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._late)

    def was_done(self) -> bool:
        """In an earlier life of this sidecar."""
        return os.path.exists(self._mark)

    def begin(self) -> None:
        """The archive comes. Raises 409 when none is awaited."""
        if not self.awaited or self._begun:
            text = "files can only be restored once, into a sandbox whose claim asks for it"
            raise ApiError(409, "conflict", text)
        self._begun = True
        self.forget_timer()

    def done(self) -> None:
        """All files are there."""
        os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self.awaited = self._begun = False
        self._ready()

    async def failed(self, why: str) -> None:
        """A sandbox with half of its files is of no use."""
        await self._end(f"the checkpoint could not be restored: {why}")

    def reset(self) -> None:
        """The sandbox is a fresh one, of nobody yet."""
        self.forget_timer()
        self.awaited = self._begun = False
        try:
            os.unlink(self._mark)
        except FileNotFoundError:
            return

    def forget_timer(self) -> None:
        """It began, or the instance is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._tasks.spawn(self.failed("nobody has brought it"))
