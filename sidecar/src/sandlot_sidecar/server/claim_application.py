"""Puts a claim in force: image, limits, network, egress policy, services; one that fails leaves no image to the next owner."""

from __future__ import annotations

import asyncio

from ..core.errors import SidecarError
from .executor_client import ExecutorError, ExecutorGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..core.instance import InstanceState
    from .egress.owned import OwnedPolicy
    from .links.owned import OwnedLinks
    from .ops import Ops
    from .sandbox import Sandbox


class ClaimApplication:
    """Applies the claims of one instance; the caller holds its lock. `store` writes the record."""

    def __init__(
        self,
        life: InstanceState,
        sandbox: Sandbox,
        ops: Ops,
        egress: OwnedPolicy,
        links: OwnedLinks,
        store: Callable[[], None],
    ) -> None:
        self._life = life
        self._sandbox = sandbox
        self._ops = ops
        self._egress = egress
        self._links = links
        self._store = store

    async def apply(self, claim: dict[str, Any]) -> None:
        """Apply it and write the record. Raises SidecarError: an ExecutorError `setup` if no root is left."""
        sandbox, before = self._sandbox, self._sandbox.image
        try:
            await sandbox.apply(claim, self._ops.pool, unused=True)
            self._life.laid(sandbox.image)
            # The executor reads the state and forks the runner while this process writes to the disk.
            recorded = asyncio.create_task(sandbox.record())
            self._ops.pool.open()
            await asyncio.sleep(0)
            try:
                await self._egress.begin(claim["egress"])
            finally:
                await self._end_of_record(recorded)
            # After `record`: the names are no part of a fresh sandbox.
            await self._links.begin(claim)
        except BaseException:
            if sandbox.image is not before:
                await self._lay_again(before)
            raise

    async def _end_of_record(self, recorded: asyncio.Task[None]) -> None:
        """Wait for it; if it failed, lift the claim's egress policy, which is not for the next owner."""
        try:
            await recorded
        except BaseException:
            try:
                await self._egress.emptied(kept=False)
            except ExecutorGone:
                raise
            except SidecarError as error:
                message = f"cannot lift the egress policy after a claim failed: {error}"
                raise ExecutorError(503, "setup", message) from error
            raise

    async def _lay_again(self, image: dict[str, Any] | None) -> None:
        """Lay the earlier image again: the claim's, which may be private, is not for the next owner."""
        try:
            await self._sandbox.lay_again(image, self._ops.pool)
            self._ops.pool.open()
            self._life.laid(image)
            self._life.record.withdraw()  # a restart must not find the claim
            self._store()
        except ExecutorGone:
            raise
        except SidecarError as error:
            message = f"cannot build the root again after a claim failed: {error}"
            raise ExecutorError(503, "setup", message) from error
