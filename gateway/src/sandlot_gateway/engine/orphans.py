"""Deletes sandboxes whose caller disconnected before it got the id, after a grace period if it can come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox


class Orphans:
    """Calls `delete` with the sandbox and the reason; `grace` in seconds."""

    def __init__(self, *, grace: float, delete: Callable[[Sandbox, str], object]) -> None:
        self._grace = grace
        self._delete = delete
        # sandbox id -> create requests that were or will be answered
        self._callers: Counter[SandboxId] = Counter()
        self._timers: dict[SandboxId, asyncio.TimerHandle] = {}

    def asked(self, sandbox: Sandbox) -> None:
        """Count a create request for it: the first, or a repeat with its idempotency key."""
        self.used(sandbox.id)
        self._callers[sandbox.id] += 1

    def hung_up(self, sandbox: Sandbox) -> None:
        """Handle a caller that disconnected unanswered. Without an idempotency key it cannot come back."""
        if not sandbox.live:
            return
        self._callers[sandbox.id] -= 1
        if self._callers[sandbox.id] > 0:
            return
        if sandbox.spec.key is None:
            self._delete(sandbox, "the caller left before create was answered")
        elif sandbox.id not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[sandbox.id] = loop.call_later(self._grace, self._reap, sandbox)

    def used(self, sandbox_id: SandboxId) -> None:
        """Cancel the grace period, because a caller uses this sandbox. Runs for every request, so it must be cheap."""
        if self._timers:
            timer = self._timers.pop(sandbox_id, None)
            if timer is not None:
                timer.cancel()

    def ended(self, sandbox_id: SandboxId) -> None:
        self.used(sandbox_id)
        self._callers.pop(sandbox_id, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _reap(self, sandbox: Sandbox) -> None:
        self._timers.pop(sandbox.id, None)
        self._delete(sandbox, "the caller left before create was answered and did not come back")
