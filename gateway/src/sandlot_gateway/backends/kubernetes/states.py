"""Handles what sidecars report by webhook or when polled: decides which reports count and which sidecars to poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.phases import Phase

from ...core.backend import LeftAlone, Unavailable
from ...core.instances import Instance
from ...data.pool import HttpPool
from .instances import Instances, Origin, SeenInstance, Source
from .pools import Pools
from .prober import Prober
from .recorded import Recorded
from .reporter import Reporter
from .urgent_polls import UrgentPolls

_LISTENS_WITHIN = 30.0  # seconds after its containers run; until then a refused connection is no failure


class SidecarStates:
    def __init__(
        self,
        instances: Instances,
        *,
        recorded: Recorded,
        pools: Pools,
        pool: HttpPool,
        reporter: Reporter,
        watching: Callable[[], bool],
        reached: Callable[[SeenInstance], None],
        claimed_within: float,
        starting_for: float,
    ) -> None:
        """`watching`: whether the watches work now, so that what they do not show does not exist. `reached`: called with
        each reused instance that has reported its generation. `claimed_within`: seconds for another gateway to claim
        the instance that it started. `starting_for`: seconds after which a pool's pod with a silent sidecar no longer
        counts as starting.
        """
        self._instances = instances
        self._recorded = recorded
        self._pools = pools
        self._starts: dict[str, dict[InstanceId, SeenInstance]] = {}  # starting pods, by pool
        self._pool_of: dict[InstanceId, str] = {}  # of those
        self._reporter = reporter
        self._watching = watching
        self._reached = reached
        self._claimed_within = claimed_within
        self._starting_for = starting_for
        # instance id -> loop time of its first report, while it is left to the gateway that started it
        self._left_since: dict[InstanceId, float] = {}
        self._prober = Prober(
            pool=pool, told=self._told, is_there=instances.__contains__, may_start=self._may_start
        )
        self._urgent = UrgentPolls(
            pool=pool,
            told=self._told_urgently,
            is_there=lambda instance_id: instance_id in instances,
            may_start=self._may_start,
            has_address=self._has_address,
        )

    def hear(self, instance_id: InstanceId, state: dict[str, Any]) -> Instance | None:
        """Handle a webhook, see `Backend.hear`."""
        if self._instances.is_gone(instance_id):
            return None
        template = self._pools.template(str(state.get("template")))
        seen = self._instances.from_state(instance_id, state, template=template)
        if seen is None:
            raise Unavailable(f"the template of {instance_id} is not known yet")
        if seen.reused:
            self._reached(seen)
        if self._is_not_ours(seen, state):
            # Offered here, a create of this gateway would claim it at once.
            self._prober.ask(seen.instance)
            raise LeftAlone
        if state.get("phase") != Phase.STARTING:
            self._started(instance_id)
            if not state.get("restoring"):
                self._prober.leave(instance_id)
        if state.get("restoring") and self._reporter.events.owner(instance_id) != state.get("sandbox_id"):
            # The sidecar reports the end of the restore to one gateway, which may be the one that sent the files.
            self._prober.ask(seen.instance)
        return seen.instance

    def heard(self, instance: Instance, state: dict[str, Any]) -> None:
        """Handle the state of a known instance that came with an answer of its sidecar, or from another gateway."""
        if instance.id not in self._instances:
            return
        if (seen := self._instances.from_state(instance.id, state, template=instance.template)) is not None:
            self._reached(seen)
            self._reporter.events.instance_found(instance, state)

    def expect(self, seen: SeenInstance, *, reachable: bool) -> None:
        """Wait for a running pod's sidecar to report; poll it if it is `reachable`, that is, has a known address."""
        if self._reporter.events.phase(seen.instance.id) is not None:
            return
        if (pool := seen.instance.pool) is not None:
            self._not_starting(seen.instance.id)
            self._pool_of[seen.instance.id] = pool
            self._starts.setdefault(pool, {})[seen.instance.id] = seen
        if reachable:
            self._prober.ask(seen.instance)

    def starting(self, pool: str) -> int:
        """Count the pool's starting instances."""
        return len(self._starting(pool))

    def keeping_image(self, pool: str) -> int:
        """Count those of `starting` that keep their image although others take any."""
        return sum(seen.instance.keeps_image and seen.pod is not None for seen in self._starting(pool))

    def placed(self, pool: str) -> bool:
        """Return whether one of `starting` has a node."""
        return any(seen.node is not None for seen in self._starting(pool))

    def ask(self, instance: Instance) -> None:
        """Poll the sidecar, whatever it reported before. Return at once."""
        self._prober.ask(instance, since_now=True)

    async def polled(self, instances: Iterable[Instance]) -> None:
        """Poll these sidecars, and wait until each has told whether it has an owner by now, see `UrgentPolls.poll`."""
        for late in await self._urgent.poll(instances):
            # Nothing would end the polls of one that is gone; one without an address is polled once it has one.
            if late.id in self._instances and self._has_address(late):
                self._prober.ask(late)

    def stop_asking(self, instance_id: InstanceId) -> None:
        """Stop polling this sidecar."""
        self._prober.leave(instance_id)

    def forget(self, instance_id: InstanceId) -> None:
        """Stop waiting for this instance's report and counting it as starting."""
        self._prober.leave(instance_id)
        self._started(instance_id)

    async def settle(self, *, timeout: float) -> bool:
        """Wait until each polled sidecar has been tried once; return whether that is so."""
        return await self._prober.settle(timeout=timeout)

    async def close(self) -> None:
        await self._urgent.close()
        await self._prober.close()

    def _started(self, instance_id: InstanceId) -> None:
        self._not_starting(instance_id)
        self._left_since.pop(instance_id, None)

    def _not_starting(self, instance_id: InstanceId) -> None:
        if (pool := self._pool_of.pop(instance_id, None)) is not None:
            del self._starts[pool][instance_id]
            if not self._starts[pool]:
                del self._starts[pool]

    def _starting(self, pool: str) -> list[SeenInstance]:
        since = time.monotonic() - self._starting_for
        return [seen for seen in self._starts.get(pool, {}).values() if seen.since > since]

    def _told(self, instance: Instance, state: dict[str, Any]) -> bool:
        """Handle the answer to a poll. Return False to poll again."""
        seen = self._instances.get(instance.id)
        if seen is None:
            return True
        if self._is_not_ours(seen, state):
            return False
        seen = self._instances.from_state(instance.id, state, template=instance.template) or seen
        if seen.reused:
            self._reached(seen)
        self._started(instance.id)
        self._reporter.events.instance_found(instance, state)
        return not state.get("restoring") or instance.id not in self._instances

    def _told_urgently(self, instance: Instance, state: dict[str, Any]) -> None:
        if not self._told(instance, state):
            self._prober.ask(instance)

    def _has_address(self, instance: Instance) -> bool:
        """Return whether to poll it at its address: a name in DNS tells nothing before the watch has its pod's."""
        seen = self._instances.get(instance.id)
        return seen is None or seen.source is not Source.DNS or seen.reported or not self._watching()

    def _may_start(self, instance: Instance) -> bool:
        """Return whether it is known that its sidecar has not reported, is not claimed, and has not run for long."""
        seen = self._instances.get(instance.id)
        if seen is None or seen.reported or not self._watching() or self._recorded.is_claimed(instance.id, 0):
            return False
        running_since = seen.pod.ready_at if seen.pod is not None else None
        return running_since is None or time.time() - running_since < _LISTENS_WITHIN

    def _is_not_ours(self, seen: SeenInstance, state: dict[str, Any]) -> bool:
        """Return whether a warm instance is not to be offered here: claimed, another gateway's start, or deleted."""
        if state.get("phase") != Phase.WARM:
            return False
        instance_id = seen.instance.id
        if self._recorded.is_claimed(instance_id, state.get("generation", 0)):
            return True  # the report predates the recorded claim
        if self._recorded.is_made_for_one(instance_id):
            return self._is_left(seen)
        # Without its Sandbox the controller deletes a cold start's pod.
        abandoned = seen.origin is Origin.OTHERS_START and not self._recorded.exists(instance_id)
        return abandoned and self._watching()

    def _is_left(self, seen: SeenInstance) -> bool:
        """Return whether the gateway that started it may still be about to claim it."""
        if seen.origin is Origin.OWN_START:
            return False
        now = asyncio.get_running_loop().time()
        return now - self._left_since.setdefault(seen.instance.id, now) < self._claimed_within
