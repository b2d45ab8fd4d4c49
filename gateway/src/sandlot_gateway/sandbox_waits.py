"""Waits for sandboxes: for one to change, and for one of another gateway to become known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from sandlot_contract.ids import SandboxId, created_at

# A sandbox of another gateway that is younger than this (seconds) is waited for longer than other unknown ones: its
# record may be late on a busy cluster, and "no such sandbox" would make the caller give it up.
NEW_SECONDS = 60.0
NEW_PATIENCE = 7.5
MISSED_AFTER = 1.0  # seconds within which another gateway's record normally arrives


class SandboxWaits:
    """The calls that wait, by sandbox. The options are those of `Directory`, which calls `wake` at each change."""

    def __init__(
        self,
        *,
        keep: float,
        patience: float,
        sought: Callable[[SandboxId], None],
        missed: Callable[[bool], None],
        elsewhere: Callable[[SandboxId], bool],
        clock: Callable[[], float],
    ) -> None:
        self._keep = keep
        self._patience = patience
        self._on_sought = sought
        self._on_missed = missed
        self._elsewhere = elsewhere
        self._clock = clock
        self._changes: dict[SandboxId, _Change] = {}
        self._released = False

    async def change(self, sandbox_id: SandboxId, *, timeout: float, background: bool = False) -> None:
        """Wait up to `timeout` seconds for a known sandbox to change; not once `release` was called.

        `background`: no caller waits, so it waits after that, too, or who repeats it would not rest.
        """
        if timeout <= 0 or (self._released and not background):
            return
        await self._wait(sandbox_id, self._changes.setdefault(sandbox_id, _Change()), timeout=timeout)

    async def appearance(self, sandbox_id: SandboxId) -> None:
        """Wait for an unknown sandbox that another gateway may have just created."""
        if not self._patience or created_at(sandbox_id) is None:
            return
        new = self._is_new(sandbox_id)
        timeout = self._patience * (NEW_PATIENCE if new else 1)
        change = self._changes.setdefault(sandbox_id, _Change())
        loop = asyncio.get_running_loop()
        # Beyond this age no gateway knows one that has ended.
        young = self._is_younger(sandbox_id, max(self._keep, NEW_SECONDS))
        if young and loop.time() >= change.sought_until:
            change.sought_until = loop.time() + timeout
            self._on_sought(sandbox_id)
        missed = loop.call_later(MISSED_AFTER, self._on_missed, new)
        try:
            await self._wait(sandbox_id, change, timeout=timeout)
        finally:
            missed.cancel()

    def may_come(self, sandbox_id: SandboxId) -> bool:
        """Return whether another gateway may have an unknown sandbox: it is new, or not all of them have denied it."""
        return bool(self._patience) and (self._is_new(sandbox_id) or self._elsewhere(sandbox_id))

    def wake(self, sandbox_id: SandboxId) -> None:
        """Wake the calls that wait for this sandbox."""
        event = self._changes.pop(sandbox_id, None)
        if event is not None:
            event.set()

    def release(self) -> None:
        """Wake all calls, and let none but those in the background wait for a change from now on."""
        self._released = True
        for sandbox_id in list(self._changes):
            self.wake(sandbox_id)

    async def _wait(self, sandbox_id: SandboxId, change: _Change, *, timeout: float) -> None:
        change.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await change.wait()
        finally:
            change.waiting -= 1
            # Nothing else removes that of a sandbox that never comes.
            if not change.waiting and self._changes.get(sandbox_id) is change:
                del self._changes[sandbox_id]

    def _is_new(self, sandbox_id: SandboxId) -> bool:
        return self._is_younger(sandbox_id, NEW_SECONDS)

    def _is_younger(self, sandbox_id: SandboxId, seconds: float) -> bool:
        made = created_at(sandbox_id)
        return made is not None and abs(self._clock() - made) < seconds


class _Change(asyncio.Event):
    """The next change of a sandbox, and who waits for it."""

    waiting = 0  # calls
    sought_until = 0.0  # on the loop's clock; another search would tell nothing new before
