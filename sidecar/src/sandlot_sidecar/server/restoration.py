"""The files of a checkpoint that are still to come into a claimed sandbox: until they are there, nothing runs in it."""

from __future__ import annotations

import asyncio
import os

from ..core import ends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.ends import End
    from ..core.instance import Heard, Life

PATIENCE = 60.0  # seconds until the archive begins to come; then its gateway is taken for dead
MARK = "restored"  # a file of the state directory: a sidecar that is started again knows that they are there


class Restoration:
    """`late` ends the sandbox for which no file comes; `ready` is called when all are there."""

    def __init__(
        self,
        life: Life,
        *,
        state_dir: str,
        late: Callable[[End], None],
        heard: Callable[[Heard], bool],
        ready: Callable[[], None],
    ) -> None:
        self._life = life
        self._mark = os.path.join(state_dir, MARK)
        self._late = late
        self._heard = heard
        self._ready = ready
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """The claim says that files come."""
        late = ends.not_restored("nobody has brought it")
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._late, late)

    def was_done(self) -> bool:
        """In an earlier life of this sidecar."""
        return os.path.exists(self._mark)

    def begin(self) -> int:
        """The archive comes; returns the generation that it is for. Raises ApiError."""
        self._life.restore()
        self.stop()
        return self._life.record.generation

    def done(self, *, generation: int) -> None:
        """All files are there."""
        if self._heard(self._life.restored(generation=generation)):
            os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._ready()

    def reset(self) -> None:
        """The sandbox is a fresh one, of nobody yet."""
        self.stop()
        try:
            os.unlink(self._mark)
        except FileNotFoundError:
            return

    def stop(self) -> None:
        """It comes, or the instance is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
