"""Has sandboxes deleted whose caller disconnected before it got the id, after a grace period if it can come back.

Without an instance, the gateway that began the sandbox deletes it. From then on its sidecar does, which knows every call
of the data plane through any gateway, and does so if this gateway dies. With several gateways only the one that began
it tells the sidecar.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from sandlot_contract.ids import SandboxId
from sandlot_contract.statuses import Status

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.directory import Directory
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import SidecarError, Sidecars
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

_AT_ONCE = 32  # sidecars that are called at the same time
_AGAIN = 5.0  # seconds until a sidecar that did not answer is told again


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
        self._handed_out: set[SandboxId] = (
            set()
        )  # those with a caller whom their sidecar knows, or another gateway has
        self._left: set[SandboxId] = set()  # those whose sidecar is or will be told that they have no caller
        self._timers: dict[SandboxId, asyncio.TimerHandle] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()

    def begun(self, sandbox: Sandbox) -> None:
        """Count the first create request for a sandbox, which this gateway begins."""
        self._begun.add(sandbox.id)
        self.asked(sandbox)

    def took_over(self, sandbox: Sandbox) -> None:
        """Decide from now on about a sandbox that no other gateway brings up any more."""
        self._begun.add(sandbox.id)
        if not self.has_caller(sandbox.id):
            self._start(sandbox, self._grace)

    def asked(self, sandbox: Sandbox) -> None:
        """Count a create request for it that repeats its idempotency key."""
        self._stop_timer(sandbox.id)
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
        elif sandbox.status is Status.RUNNING:
            self._leave(sandbox, grace=self._grace)
        elif sandbox.id not in self._timers:
            self._start(sandbox, self._grace)

    def asked_elsewhere(self, sandbox: Sandbox) -> None:
        """Begin the grace period anew, because a caller waits for the sandbox at another gateway."""
        if sandbox.id in self._timers:
            self._stop_timer(sandbox.id)
            self._start(sandbox, self._grace)

    def handed_out_elsewhere(self, sandbox_id: SandboxId) -> None:
        """Keep the sandbox, because another gateway records it before a caller gets its id."""
        self._stop_timer(sandbox_id)
        self._handed_out.add(sandbox_id)

    async def hand_out(self, sandbox: Sandbox) -> None:
        """Before a caller gets it, let its sidecar know, which may have been told that there is none. Raises SidecarError."""
        # One of an earlier run of this gateway may have been left.
        if sandbox.id in self._begun and sandbox.id not in self._left:
            return
        await self._note_use(sandbox)
        self._stop_timer(sandbox.id)
        self._left.discard(sandbox.id)
        if sandbox.live:
            self._handed_out.add(sandbox.id)

    def runs(self, sandbox: Sandbox) -> None:
        """Leave a sandbox of this gateway without a caller to the sidecar that it has now."""
        if (timer := self._timers.get(sandbox.id)) is not None:
            grace = max(0.0, timer.when() - asyncio.get_running_loop().time())
            self._stop_timer(sandbox.id)
            self._leave(sandbox, grace=grace)

    async def running(self, sandbox: Sandbox) -> None:
        """Tell the sidecar of a sandbox that was handed out here before it ran."""
        try:
            if sandbox.id in self._handed_out:
                await self._note_use(sandbox)
        except SidecarError as error:
            _log.warning("a sidecar does not know that its sandbox has a caller: %s", error)

    def used(self, sandbox_id: SandboxId) -> None:
        """Keep the sandbox, because a caller uses it here. Runs for every request, so it must be cheap."""
        if self._timers:
            self._stop_timer(sandbox_id)
        if sandbox_id in self._left:
            self._left.discard(sandbox_id)
            self._tasks.spawn(self._tell_use(sandbox_id))

    def ended(self, sandbox_id: SandboxId) -> None:
        self._stop_timer(sandbox_id)
        self._callers.pop(sandbox_id, None)
        self._begun.discard(sandbox_id)
        self._handed_out.discard(sandbox_id)
        self._left.discard(sandbox_id)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._tasks.close()

    def _decides(self, sandbox_id: SandboxId) -> bool:
        return self._backend.single_gateway or sandbox_id in self._begun

    # With an instance.

    def _leave(self, sandbox: Sandbox, *, grace: float) -> None:
        self._left.add(sandbox.id)  # at once: a caller may come back before the sidecar has been told
        self._tasks.spawn(self._tell_left(sandbox, grace))

    async def _tell_left(self, sandbox: Sandbox, grace: float) -> None:
        instance = self._backend.instance(sandbox.instance_id) if sandbox.instance_id is not None else None
        async with self._at_once:
            if sandbox.id not in self._left:
                return
            told = instance is not None and await self._sidecars.orphan(instance, sandbox.id, grace=grace)
        if told:
            _log.info(
                "its caller has left: the sidecar ends it if it stays unused", extra={"sandbox": sandbox.id}
            )
        elif sandbox.id in self._left:
            _log.warning("a sidecar that did not answer is told again", extra={"sandbox": sandbox.id})
            self._start(sandbox, _AGAIN)

    async def _note_use(self, sandbox: Sandbox) -> None:
        route = self._directory.find(sandbox.id)
        if route is not None and route.status is Status.RUNNING:
            await self._sidecars.note_use(route)

    async def _tell_use(self, sandbox_id: SandboxId) -> None:
        while (sandbox := self._directory.get(sandbox_id)) is not None and sandbox.live:
            try:
                await self._note_use(sandbox)
            except SidecarError as error:
                _log.warning("a sidecar that does not know that its sandbox is used is told again: %s", error)
                await asyncio.sleep(_AGAIN)
            else:
                return

    # Without one.

    def _start(self, sandbox: Sandbox, seconds: float) -> None:
        self._stop_timer(sandbox.id)
        loop = asyncio.get_running_loop()
        self._timers[sandbox.id] = loop.call_later(seconds, self._over, sandbox)

    def _stop_timer(self, sandbox_id: SandboxId) -> None:
        timer = self._timers.pop(sandbox_id, None)
        if timer is not None:
            timer.cancel()

    def _over(self, sandbox: Sandbox) -> None:
        """Handle the end of the grace period."""
        del self._timers[sandbox.id]
        if sandbox.status is Status.RUNNING:
            self._leave(sandbox, grace=self._grace)
        elif sandbox.asked_at and not self._backend.single_gateway:
            self._start(
                sandbox, self._grace
            )  # its claim may have been accepted, and be known to another gateway
        else:
            self._delete(sandbox, "the caller left before create was answered and did not come back")
