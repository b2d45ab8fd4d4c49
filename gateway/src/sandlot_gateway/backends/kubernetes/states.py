"""What sidecars say of themselves, by webhook or when they are asked: which words count, and who is asked again."""

from __future__ import annotations

import time
from typing import Any

from sandlot_contract.phases import Phase

from ...core.backend import LeftAlone, Unavailable
from ...core.instances import Instance
from ...data.pool import HttpPool
from .asking import Asker
from .instances import Entry, Instances
from .pools import Pools
from .poolstarts import PoolStarts
from .records import Records
from .reporter import Reporter


class SidecarStates:
    def __init__(
        self,
        instances: Instances,
        *,
        records: Records,
        pools: Pools,
        starts: PoolStarts,
        pool: HttpPool,
        reporter: Reporter,
        claimed_within: float,
    ) -> None:
        """`claimed_within`: seconds that what another gateway has started is left to that one."""
        self._instances = instances
        self._records = records
        self._pools = pools
        self._starts = starts
        self._reporter = reporter
        self._claimed_within = claimed_within
        self._asker = Asker(pool=pool, told=self._told)

    def hear(self, instance_id: str, state: dict[str, Any]) -> Instance | None:
        """As `Backend.hear`: a webhook."""
        if self._instances.is_gone(instance_id):
            return None
        template = self._pools.template(str(state.get("template")))
        entry = self._instances.from_state(instance_id, state, template=template)
        if entry is None:
            raise Unavailable(f"the template of {instance_id} is not known yet")
        if entry.leaving:
            return None
        if self._is_stale(entry, state):
            # Offered here, an instance that another gateway has started for a create of its own would be claimed by
            # one of this gateway's in that moment.
            self._asker.ask(entry)
            raise LeftAlone
        self._heard(entry, state)
        return entry.instance

    def expect(self, entry: Entry, *, reachable: bool) -> None:
        """Its pod is there and runs, as far as one can see; `reachable`: at an address that is known."""
        if entry.heard or entry.leaving:
            return
        if entry.instance.pool is not None:
            self._starts.add(entry)
        if reachable:
            self._asker.ask(entry)

    def ask(self, entry: Entry) -> None:
        """Whatever it said before: until it has answered, it counts as not heard. Returns at once."""
        entry.heard = False
        self._asker.ask(entry)

    def stop_asking(self, instance_id: str) -> None:
        """Nobody needs its answer any more."""
        self._asker.leave(instance_id)

    def forget(self, instance_id: str) -> None:
        """No word of it is waited for any more, nor is it a start of its pool."""
        self._asker.leave(instance_id)
        self._starts.discard(instance_id)

    async def settle(self, *, timeout: float) -> None:
        """Until each that is asked has been asked once, whatever came of it."""
        await self._asker.settle(timeout=timeout)

    async def close(self) -> None:
        await self._asker.close()

    def _told(self, entry: Entry, state: dict[str, Any]) -> bool:
        """The answer to a question, unless a webhook was faster. False: ask again."""
        if entry.heard or entry.leaving or not self._reporter.listening:
            return True
        if self._is_stale(entry, state):
            return False
        self._instances.from_state(entry.instance.id, state, template=entry.instance.template)
        self._heard(entry, state)
        self._reporter.instance_found(entry.instance, state)
        return entry.heard  # not any more, if whoever was told of it has found that more is to be asked

    def _heard(self, entry: Entry, state: dict[str, Any]) -> None:
        if state.get("phase") != Phase.STARTING:
            entry.heard = True
            self.forget(entry.instance.id)

    def _is_stale(self, entry: Entry, state: dict[str, Any]) -> bool:
        """From before a claim whose Sandbox was faster: taken for the truth, it would hide the owner."""
        known = self._records.of_pod(entry.instance.id)
        if state.get("phase") != Phase.WARM or known is None:
            return False
        return known.claimed or (known.made_for is not None and self._is_left(entry))

    def _is_left(self, entry: Entry) -> bool:
        """The gateway that has started it is about to claim it, and only its sidecar tells of that."""
        if entry.made_here:
            return False
        now = time.monotonic()
        entry.warm_since = entry.warm_since or now
        return now - entry.warm_since < self._claimed_within
