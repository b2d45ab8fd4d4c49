"""Changes what an owner has since its claim: the egress policy, the deadline, the links to its group's services."""

from __future__ import annotations

import time

from ..core.errors import ApiError
from ..core.instance import InstanceState, Phase
from .egress import body as egress
from .executor_client import ExecutorGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from .egress.owned import OwnedPolicy
    from .links.owned import OwnedLinks
    from .sandbox import Sandbox
    from .use import Use


class OwnerChanges:
    """Changes of one instance, each under its `lock`. `store` writes the record."""

    def __init__(
        self,
        life: InstanceState,
        *,
        lock: asyncio.Lock,
        sandbox: Sandbox,
        use: Use,
        policy: OwnedPolicy,
        links: OwnedLinks,
        store: Callable[[], None],
    ) -> None:
        self._life = life
        self._lock = lock
        self._sandbox = sandbox
        self._use = use
        self._policy = policy
        self._links = links
        self._store = store

    async def set_egress(self, body: dict[str, Any]) -> None:
        """Apply an egress policy and record it, or neither. Raises ApiError."""
        wanted = egress.parse(body)
        async with self._lock:
            if self._life.owned()["network"] != "full":
                raise ApiError(409, "unsupported", "the sandbox has no network: claim it with network full")
            try:
                await self._policy.replace(wanted)
            except ExecutorGone as error:
                raise ApiError(503, "broken", str(error)) from error

    async def set_deadline(self, sandbox_id: str, *, seconds: float, only_later: bool) -> None:
        """Set the owner's deadline, `seconds` from now, and record it; `only_later`: never to an earlier time.

        Raises ApiError, also if another sandbox owns the instance.
        """
        record = self._life.record
        async with self._lock:
            if self._life.owned()["sandbox_id"] != sandbox_id:
                raise ApiError(409, "claimed", "another sandbox owns this instance", field="sandbox_id")
            deadline, former = time.time() + seconds, record.deadline_at()
            if only_later and (former is None or former >= deadline):
                return
            record.deadline = deadline
            self._store()
            self._use.arm_deadline(record)

    async def link_again(self, generation: int) -> None:
        """Link the services again for the owner of this generation, if it still has the instance."""
        record = self._life.record
        async with self._lock:
            if self._life.phase is Phase.CLAIMED and record.generation == generation:
                missing = await self._links.begin_again(record.claim)
                self._sandbox.notes += [note for note in missing if note not in self._sandbox.notes]
