"""Pods of pools that die or must go: why, whether their pool backs off for it, and their removal."""

from __future__ import annotations

import logging

from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import verdicts
from sandlot_kube.objects import Pod
from sandlot_kube.verdicts import Verdict

from sandlot_controller.api import Api
from sandlot_controller.pool_plan import Planner
from sandlot_controller.retry import until_done
from sandlot_controller.settings import Settings
from sandlot_controller.tasks import Tasks
from sandlot_controller.world import World

_log = logging.getLogger(__name__)
# The template's fault, or may be; a lost node or an eviction says nothing about the next start.
_FAILURES = {
    SandboxVerdict.IMAGE_PULL,
    SandboxVerdict.START_FAILED,
    SandboxVerdict.SANDBOX_LOST,
    SandboxVerdict.SIDECAR_LOST,
    SandboxVerdict.OOM,
}


class PoolDeaths:
    """`due`: when something has to be looked at again; whoever plans empties it before."""

    def __init__(self, world: World, api: Api, *, planner: Planner, settings: Settings) -> None:
        self._world = world
        self._api = api
        self._planner = planner
        self._settings = settings
        self._tasks = Tasks()
        self._forced: set[str] = set()  # pods that go without their node's word
        self.leaving: set[str] = set()  # pods whose end is under way
        self.asked: set[str] = set()  # and those of them that end because we asked
        self.due: list[float] = []

    def gone(self, name: str) -> None:
        for known in (self.leaving, self._forced, self.asked):
            known.discard(name)

    async def close(self) -> None:
        await self._tasks.close()

    def dead(self, pod: Pod, pool: str, *, now: float) -> bool:
        """Whether it counts as gone; it then goes, and the pool backs off if its template may be the cause."""
        name = pod.metadata.name
        found = verdicts.of_pod(pod) or self._late(pod, now=now)
        if found is None:
            return False
        if not found.certain:
            # Its sidecar ended in order: retired by us, or claimed and its record is to come.
            until = self._world.odd_since.setdefault(name, now) + self._settings.end_grace
            if now < until:
                self.due.append(until)
                return True
        if found.certain and found.verdict in _FAILURES and name not in self.asked:
            _log.warning("pool %s: %s: %s: %s", pool, name, found.verdict, found.message)
            self._planner.failed(pool, now=now, message=f"{found.verdict}: {found.message}")
        self._world.remember(name, found)
        self.take(pod, at_once=found.verdict == SandboxVerdict.NODE_LOST)
        return True

    def _late(self, pod: Pod, *, now: float) -> Verdict | None:
        name, node = pod.metadata.name, pod.spec.node_name
        if node is None:
            return None
        silent = self._world.silent_since.get(node)
        if silent is not None:
            if now >= silent + self._settings.node_grace:
                return verdicts.of_lost_node(node, seconds=self._settings.node_grace)
            self.due.append(silent + self._settings.node_grace)
        if name not in self._world.ready_since:
            until = self._world.first_seen.get(name, now) + self._settings.start_timeout
            if now >= until:
                return verdicts.of_slow_start(pod, seconds=self._settings.start_timeout)
            self.due.append(until)
        return None

    def let_go(self, pod: Pod, *, now: float) -> None:
        """On its way out; of a lost node nobody will say that it has ended."""
        name, silent = pod.metadata.name, self._world.silent_since.get(pod.spec.node_name or "")
        if silent is None or name in self._forced:
            return
        due = silent + self._settings.node_grace
        if now < due:
            self.due.append(due)
        elif self._tasks.spawn(f"force {name}", self._delete(pod, at_once=True)):
            self._forced.add(name)

    def take(self, pod: Pod, *, at_once: bool) -> None:
        name = pod.metadata.name
        if self._tasks.spawn(f"delete {name}", self._delete(pod, at_once=at_once)):
            self.leaving.add(name)

    async def _delete(self, pod: Pod, *, at_once: bool) -> None:
        await until_done(lambda: self._api.delete_pod(pod, now=at_once))
