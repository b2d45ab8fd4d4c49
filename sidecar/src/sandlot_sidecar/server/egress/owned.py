"""Keeps the owner's egress policy in the record on disk and in force: both, or neither."""

from __future__ import annotations

from ...core.errors import ApiError, bad_input
from ..record import StoreError
from . import body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...core.record import Record
    from ..executor_client import ExecutorClient
    from ..nameservers import NameServers
    from .hold import EgressEnforcer


class OwnedPolicy:
    """Egress policy of one instance; callers hold the instance's lock. `store` writes the record."""

    def __init__(
        self, *, record: Record, store: Callable[[], None], executor: ExecutorClient, names: NameServers
    ) -> None:
        self._record = record
        self._store = store
        self._executor = executor
        self._names = names
        self._holding: EgressEnforcer | None = None  # imported by the first policy
        self.by_tables = False  # under gVisor

    async def begin(self, policy: dict[str, Any] | None) -> None:
        """Write the claim, and enforce its policy before the owner's code runs. Raises StoreError and ApiError."""
        if policy is not None:
            self._record.egress = {**policy, "generation": body.NONE["generation"]}
        self._store()
        if policy is None:
            return
        try:
            await self._hold(policy, instead_of=body.NONE)
        except BaseException as error:
            self._record.withdraw()
            self._store()  # otherwise a restart would restore a claim that was never acknowledged
            if not isinstance(error, ApiError):
                raise
            # No instance of this kind can enforce it, so the request is at fault.
            raise bad_input(error.message, field="egress") from error

    async def replace(self, wanted: dict[str, Any]) -> None:
        """Replace the policy. Raises StoreError, ApiError and ExecutorGone."""
        before = self._record.egress
        held = before or body.NONE
        changed = not body.same(held, wanted)
        self._record.egress = {**wanted, "generation": held["generation"] + changed}
        try:
            self._store()  # first: after a crash in between it is applied, not forgotten
            await self._hold(wanted, instead_of=held)
        except (StoreError, ApiError):
            self._record.egress = before
            self._store()
            raise

    async def again(self) -> None:
        """Enforce the recorded policy after a restart of this process."""
        if self._record.egress is not None:
            await self._hold(self._record.egress, instead_of=body.NONE)

    async def emptied(self, *, kept: bool) -> None:
        """After a reset: cut what dead processes had open, and stop enforcing the policy unless its owner is `kept`."""
        if self._holding is not None:
            self._holding.cut()
        if not kept and self._record.egress is not None:
            await self._hold(body.NONE, instead_of=self._record.egress)

    def close(self) -> None:
        if self._holding is not None:
            self._holding.close()

    async def _hold(self, policy: dict[str, Any], *, instead_of: dict[str, Any]) -> None:
        if self._holding is None:
            from .hold import EgressEnforcer

            self._holding = EgressEnforcer(self._executor, self._names)
        await self._holding.hold(policy, instead_of=instead_of, by_tables=self.by_tables)
