"""Resets the pods of pools that reuse them, and offers the next generation to all gateways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.instances import Instance
from ...core.slot import Phase
from ...data.pool import HttpPool
from ...resets import ResetOutcome, reset_for_next_owner
from .recorder import Recorder
from .view import View


class Recycler:
    def __init__(
        self, view: View, *, recorder: Recorder, pool: HttpPool, announce: Callable[[dict[str, Any]], None]
    ) -> None:
        """`announce`: tells other gateways the state of a pod that was reset."""
        self._view = view
        self._recorder = recorder
        self._pool = pool
        self._announce = announce
        self._resetting: dict[str, Counter[str]] = {}  # pool -> tenant -> instances

    def resetting(self, pool: str) -> Mapping[str, int]:
        """Count the pool's instances that are being reset, by tenant."""
        return self._resetting.get(pool, {})

    async def recycle(self, instance: Instance, *, generation: int, tenant: str) -> bool:
        """Reset an instance, see `Backend.recycle`."""
        seen = self._view.instances.get(instance.id)
        if seen is None or not seen.reused or self._view.recorded.ends_with_pod(instance.id):
            return False
        with self._counted(instance.pool or "", tenant):
            reset = await reset_for_next_owner(self._pool, instance, generation=generation)
        if reset.outcome is ResetOutcome.PROVEN:
            self._recorder.settled(instance.id)
            self._announce(reset.state)
            self._view.states.heard(instance, reset.state)
            return True
        if reset.outcome is ResetOutcome.STALE:
            self._recorder.settled(instance.id)
            self._view.states.ask(instance)
            return True
        # Without an answer, the report of its next generation may have come all the same.
        moved_on = self._view.phase(instance.id) is not Phase.ENDING
        return reset.outcome is ResetOutcome.UNANSWERED and moved_on

    @contextmanager
    def _counted(self, pool: str, tenant: str) -> Iterator[None]:
        resetting = self._resetting.setdefault(pool, Counter())
        resetting[tenant] += 1
        try:
            yield
        finally:
            resetting[tenant] -= 1
            if not resetting[tenant]:
                del resetting[tenant]
            if not resetting:
                self._resetting.pop(pool, None)
