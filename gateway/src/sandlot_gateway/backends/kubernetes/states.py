"""What sidecars say of themselves, by webhook or when they are asked: which words count, and who is asked again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.phases import Phase

from ...core.backend import LeftAlone, Unavailable
from ...core.instances import Instance
from ...data.pool import HttpPool
from .asking import Asker
from .instances import Instances, Origin, Seen
from .pools import Pools
from .records import Records
from .reporter import Reporter


class SidecarStates:
    def __init__(
        self,
        instances: Instances,
        *,
        records: Records,
        pools: Pools,
        pool: HttpPool,
        reporter: Reporter,
        claimed_within: float,
        starting_for: float,
    ) -> None:
        """`claimed_within`: seconds that what another gateway has started is left to that one. `starting_for`: seconds
        after which a pool's pod whose sidecar is silent counts as no start any more.
        """
        self._instances = instances
        self._records = records
        self._pools = pools
        self._starts: dict[InstanceId, Seen] = {}  # of pools
        self._reporter = reporter
        self._claimed_within = claimed_within
        self._starting_for = starting_for
        # When those that are left to the gateways that have started them were heard first, by the loop's time.
        self._left_since: dict[InstanceId, float] = {}
        self._asker = Asker(pool=pool, told=self._told)

    def hear(self, instance_id: InstanceId, state: dict[str, Any]) -> Instance | None:
        """As `Backend.hear`: a webhook."""
        if self._instances.is_gone(instance_id):
            return None
        template = self._pools.template(str(state.get("template")))
        seen = self._instances.from_state(instance_id, state, template=template)
        if seen is None:
            raise Unavailable(f"the template of {instance_id} is not known yet")
        if self._is_stale(seen, state):
            # Offered here, an instance that another gateway has started for a create of its own would be claimed by
            # one of this gateway's in that moment.
            self._asker.ask(seen.instance)
            raise LeftAlone
        if state.get("phase") != Phase.STARTING:
            self.forget(instance_id)
        return seen.instance

    def expect(self, seen: Seen, *, reachable: bool) -> None:
        """Its pod is there and runs, as far as one can see; `reachable`: at an address that is known."""
        if self._reporter.events.phase(seen.instance.id) is not None:
            return
        if seen.instance.pool is not None:
            self._starts[seen.instance.id] = seen
        if reachable:
            self._asker.ask(seen.instance)

    def starting(self, pool: str) -> int:
        """How many instances the pool has on their way."""
        since = time.monotonic() - self._starting_for
        return sum(seen.instance.pool == pool and seen.since > since for seen in self._starts.values())

    def ask(self, instance: Instance) -> None:
        """Whatever it said before. Returns at once."""
        self._asker.ask(instance)

    def stop_asking(self, instance_id: InstanceId) -> None:
        """Nobody needs its answer any more."""
        self._asker.leave(instance_id)

    def forget(self, instance_id: InstanceId) -> None:
        """No word of it is waited for any more, nor is it a start of its pool."""
        self._asker.leave(instance_id)
        self._starts.pop(instance_id, None)
        self._left_since.pop(instance_id, None)

    async def settle(self, *, timeout: float) -> None:
        """Until each that is asked has been asked once, whatever came of it."""
        await self._asker.settle(timeout=timeout)

    async def close(self) -> None:
        await self._asker.close()

    def _told(self, instance: Instance, state: dict[str, Any]) -> bool:
        """The answer to a question, which no webhook was faster than: that would have ended it. False: ask again."""
        seen = self._instances.get(instance.id)
        if seen is None:
            return True
        if self._is_stale(seen, state):
            return False
        self._instances.from_state(instance.id, state, template=instance.template)
        self.forget(instance.id)
        self._reporter.events.instance_found(instance, state)
        return True

    def _is_stale(self, seen: Seen, state: dict[str, Any]) -> bool:
        """From before a claim whose Sandbox was faster: taken for the truth, it would hide the owner."""
        known = self._records.of_pod(seen.instance.id)
        if state.get("phase") != Phase.WARM or known is None:
            return False
        return known.claimed or (known.made_for is not None and self._is_left(seen))

    def _is_left(self, seen: Seen) -> bool:
        """The gateway that has started it is about to claim it, and only its sidecar tells of that."""
        if seen.origin is Origin.OWN_START:
            return False
        now = asyncio.get_running_loop().time()
        return now - self._left_since.setdefault(seen.instance.id, now) < self._claimed_within
