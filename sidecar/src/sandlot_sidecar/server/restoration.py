"""Waits for the files of a checkpoint to arrive in a claimed sandbox, in which nothing runs until then."""

from __future__ import annotations

import asyncio
import os

from ..core import ends

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.ends import End
    from ..core.instance import InstanceState, Outcome

PATIENCE = 60.0  # seconds for the archive to begin to arrive; then its gateway counts as dead
MARK = "restored"  # file in the state directory that tells a restarted sidecar that the files have arrived


class Restoration:
    """Tracks the restore. `late` ends a sandbox whose files never arrive; `ready` is called once all have."""

    def __init__(
        self,
        life: InstanceState,
        *,
        state_dir: str,
        late: Callable[[End], None],
        heard: Callable[[Outcome], bool],
        ready: Callable[[], None],
    ) -> None:
        self._life = life
        self._mark = os.path.join(state_dir, MARK)
        self._late = late
        self._heard = heard
        self._ready = ready
        self._timer: asyncio.TimerHandle | None = None

    def expect(self) -> None:
        """Start the timeout for the archive."""
        late = ends.not_restored("no gateway sent it in time")
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._late, late)

    def was_done(self) -> bool:
        """Return whether an earlier process of this sidecar finished the restore."""
        return os.path.exists(self._mark)

    def begin(self) -> int:
        """Begin to restore; return the generation that it is for. Raises ApiError."""
        self._life.restore()
        self.stop()
        return self._life.record.generation

    def done(self, *, generation: int) -> None:
        """Record that all files have arrived."""
        if self._heard(self._life.restored(generation=generation)):
            os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._ready()

    def reset(self) -> None:
        """Forget the restore after a reset."""
        self.stop()
        try:
            os.unlink(self._mark)
        except FileNotFoundError:
            return

    def stop(self) -> None:
        """Cancel the timeout: the archive arrives, or the instance has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
