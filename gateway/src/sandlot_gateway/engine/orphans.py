"""Deletes sandboxes whose caller disconnected before it got the id, after a grace period if it can come back.

With several gateways, only the one that began a sandbox deletes it so, and only if its sidecar says that it is unused:
the caller may have come back through another gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import EndAnswer, SidecarError, Sidecars
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_AT_ONCE = 32  # sidecars that are asked at the same time
_WHY = "the caller left before create was answered and did not come back"


class Orphans:
    """Calls `delete` with the sandbox and the reason; `grace` in seconds."""

    def __init__(
        self,
        *,
        grace: float,
        delete: Callable[[Sandbox, str], object],
        directory: Directory,
        backend: Backend,
        sidecars: Sidecars,
    ) -> None:
        self._grace = grace
        self._delete = delete
        self._directory = directory
        self._backend = backend
        self._sidecars = sidecars
        # sandbox id -> create requests that were or will be answered
        self._callers: Counter[SandboxId] = Counter()
        self._begun: set[SandboxId] = set()  # sandboxes that this gateway began
        self._handed_out: set[SandboxId] = set()  # those of others with a caller that has the id
        self._ending: set[SandboxId] = set()  # those whose sidecar is being asked
        self._timers: dict[SandboxId, asyncio.TimerHandle] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()

    def begun(self, sandbox: Sandbox) -> None:
        """Count the first create request for a sandbox, which this gateway begins."""
        self._begun.add(sandbox.id)
        self.asked(sandbox)

    def asked(self, sandbox: Sandbox) -> None:
        """Count a create request for it that repeats its idempotency key."""
        self.used(sandbox.id)
        self._callers[sandbox.id] += 1

    def has_caller(self, sandbox_id: SandboxId) -> bool:
        """Return whether a caller here waits for it, or has its id."""
        return self._callers[sandbox_id] > 0 or sandbox_id in self._handed_out

    def hung_up(self, sandbox: Sandbox) -> None:
        """Handle a caller that disconnected unanswered. Without an idempotency key it cannot come back."""
        if not sandbox.live:
            return
        self._callers[sandbox.id] -= 1
        if self.has_caller(sandbox.id) or not self._decides(sandbox.id):
            return
        if sandbox.spec.key is None:
            self._delete(sandbox, "the caller left before create was answered")
        elif sandbox.id not in self._timers:
            self._start(sandbox)

    def asked_elsewhere(self, sandbox: Sandbox) -> None:
        """Begin the grace period anew, because a caller waits for the sandbox at another gateway."""
        if sandbox.id in self._timers:
            self.used(sandbox.id)
            self._start(sandbox)

    def handed_out_elsewhere(self, sandbox_id: SandboxId) -> None:
        """Keep the sandbox, because another gateway records it before a caller gets its id."""
        self.used(sandbox_id)
        self._handed_out.add(sandbox_id)

    async def hand_out(self, sandbox: Sandbox) -> None:
        """Before a caller gets another gateway's sandbox here, let its sidecar know. Raises SidecarError."""
        if self._decides(sandbox.id) and sandbox.id not in self._ending:
            return
        await self._note_use(sandbox)
        if sandbox.live:
            self._handed_out.add(sandbox.id)

    async def running(self, sandbox: Sandbox) -> None:
        """Tell the sidecar of a sandbox that was handed out here before it ran."""
        try:
            if sandbox.id in self._handed_out:
                await self._note_use(sandbox)
        except SidecarError as error:
            _log.warning("a sidecar does not know that its sandbox has a caller: %s", error)

    def used(self, sandbox_id: SandboxId) -> None:
        """Cancel the grace period, because a caller uses this sandbox. Runs for every request, so it must be cheap."""
        if self._timers:
            timer = self._timers.pop(sandbox_id, None)
            if timer is not None:
                timer.cancel()

    def ended(self, sandbox_id: SandboxId) -> None:
        self.used(sandbox_id)
        self._callers.pop(sandbox_id, None)
        self._begun.discard(sandbox_id)
        self._handed_out.discard(sandbox_id)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._tasks.close()

    def _decides(self, sandbox_id: SandboxId) -> bool:
        return self._backend.single_gateway or sandbox_id in self._begun

    async def _note_use(self, sandbox: Sandbox) -> None:
        route = self._directory.find(sandbox.id)
        if route is not None and route.status is Status.RUNNING:
            await self._sidecars.note_use(route)

    def _start(self, sandbox: Sandbox) -> None:
        loop = asyncio.get_running_loop()
        self._timers[sandbox.id] = loop.call_later(self._grace, self._over, sandbox)

    def _over(self, sandbox: Sandbox) -> None:
        """Handle the end of the grace period."""
        del self._timers[sandbox.id]
        if self._backend.single_gateway:
            self._delete(sandbox, _WHY)
        elif sandbox.status is Status.RUNNING:
            self._tasks.spawn(self._end_unused(sandbox))
        elif sandbox.asked_at:
            self._start(sandbox)  # its claim may have been accepted, and be known to another gateway
        else:
            self._delete(sandbox, _WHY)

    async def _end_unused(self, sandbox: Sandbox) -> None:
        self._ending.add(sandbox.id)
        try:
            async with self._at_once:
                answer = await self._ask_to_end(sandbox)
        finally:
            self._ending.discard(sandbox.id)
        if answer == EndAnswer.ENDED:
            self._delete(sandbox, _WHY)
        elif answer == EndAnswer.UNKNOWN and sandbox.live and not self.has_caller(sandbox.id):
            self._start(sandbox)

    async def _ask_to_end(self, sandbox: Sandbox) -> EndAnswer:
        instance_id = sandbox.instance_id
        instance = self._backend.instance(instance_id) if instance_id is not None else None
        if instance is None:
            return EndAnswer.UNKNOWN
        return await self._sidecars.end(
            instance, verdict=SandboxVerdict.DELETED, message=_WHY, only_of=sandbox.id, only_unused=True
        )
