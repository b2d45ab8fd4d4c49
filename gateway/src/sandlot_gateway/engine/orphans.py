"""Sandboxes whose creator hung up before it was told the id: they stay a while for it to come back, then go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from sandlot_contract.ids import SandboxId

from sandlot_gateway.sandboxes import Sandbox


class Orphans:
    """`delete` is called with the sandbox and the reason; `grace` in seconds."""

    def __init__(self, *, grace: float, delete: Callable[[Sandbox, str], object]) -> None:
        self._grace = grace
        self._delete = delete
        self._callers: Counter[SandboxId] = (
            Counter()
        )  # creates of a live sandbox that were or will be answered
        self._timers: dict[SandboxId, asyncio.TimerHandle] = {}

    def asked(self, sandbox: Sandbox) -> None:
        """A create asks for it: the one that makes it, or one more with its idempotency key."""
        self.used(sandbox.id)
        self._callers[sandbox.id] += 1

    def hung_up(self, sandbox: Sandbox) -> None:
        """One of them has gone unanswered. Without an idempotency key it can never ask again."""
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
        """Somebody knows this sandbox: it is nobody's orphan. Called for every request, so it has to be cheap."""
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
