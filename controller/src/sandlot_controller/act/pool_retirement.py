"""Retires pods that a pool has too many, or that are outdated or on a drained node, only with their sidecar's agreement."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod

from ..plan.pools import Planner
from ..plan.retirements import Attempt
from ..tokens import InstanceTokens
from ..world.world import World
from .drains import is_drained_of
from .pod_deletion import PodDeletion
from .sidecars import EndAnswer, Sidecars, SidecarUnreachable
from .tasks import Tasks

_log = logging.getLogger(__name__)


class PoolRetirement:
    def __init__(
        self,
        world: World,
        *,
        planner: Planner,
        deletion: PodDeletion,
        sidecars: Sidecars,
        tokens: InstanceTokens,
        changed: Callable[[str], None],
    ) -> None:
        """Call `changed` with each pod that is to be looked at."""
        self._world = world
        self._planner = planner
        self._deletion = deletion
        self._sidecars = sidecars
        self._tokens = tokens
        self._changed = changed
        self._tasks = Tasks()

    def begin(self, pool: str, pod: Pod) -> None:
        """Begin to retire a pod; returns at once."""
        self._planner.retiring(pool, pod.metadata.name)
        self._tasks.spawn(pod.metadata.name, self._retire(pool, pod))

    async def close(self) -> None:
        await self._tasks.close()

    async def _retire(self, pool: str, pod: Pod) -> None:
        name, ended = pod.metadata.name, Attempt.FAILED
        try:
            if pod.spec.node_name is not None:
                ended = await self._ask(pod)
            else:
                # Nothing runs there yet, unless the scheduler has just found a node.
                ended = Attempt.GONE if await self._deletion.delete_unscheduled(pod) else Attempt.CHANGED
        except SidecarUnreachable as error:
            _log.info("pool %s: could not ask the sidecar of %s, which stays for now: %s", pool, name, error)
        except KubeError as error:
            _log.warning("pool %s: could not delete %s: %s", pool, name, error)
        finally:
            self._planner.retired(pool, name, ended, now=self._world.clock())
            self._changed(name)
            self._world.changed.set()

    async def _ask(self, pod: Pod) -> Attempt:
        """Ask the sidecar to end unless claimed. Raises SidecarUnreachable."""
        assert pod.sidecar_host is not None
        token = self._tokens.of(pod)
        drained = is_drained_of(pod, self._world)
        end = self._sidecars.end_with_owner if drained else self._sidecars.end_if_unclaimed
        answer = await end(pod.sidecar_host, token=token)
        if answer is EndAnswer.OWNED:
            self._world.claimed_without_record(pod.metadata.name)
            return Attempt.OWNED
        self._deletion.delete_ended(pod, answer)
        return Attempt.GONE
