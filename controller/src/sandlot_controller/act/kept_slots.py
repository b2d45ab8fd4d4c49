"""Ends reused pods that were neither reset nor ended after their sandbox's end, because its gateway died, say."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from sandlot_contract.ids import SandboxId
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube.objects import Pod, Sandbox, SandboxPhase
from sandlot_kube.waiting import wait_set

from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .pod_deletion import PodDeletion
from .sidecars import Sidecars, SidecarUnreachable, SidecarUntrusted
from .tasks import Tasks
from .timers import Timers

_log = logging.getLogger(__name__)
_RETRY = 5.0  # seconds between two attempts to reach a sidecar
_MESSAGE = "no gateway reset this instance after its sandbox's end"


@dataclass(frozen=True, slots=True)
class _Ended:
    generation: int
    owner: SandboxId | None


class KeptSlots:
    """Asks the sidecar of each such pod once, `reset_grace` seconds after the end; only the last end of a pod counts.

    Deletes a pod whose sidecar does not answer for as long again, unless it has another owner by then.
    """

    def __init__(
        self,
        world: World,
        *,
        deletion: PodDeletion,
        settings: Settings,
        tokens: InstanceTokens,
        sidecars: Sidecars,
    ) -> None:
        self._world = world
        self._deletion = deletion
        self._grace = settings.reset_grace
        self._tokens = tokens
        self._sidecars = sidecars
        self._ended: dict[str, _Ended] = {}  # by pod
        self._silent: dict[str, float] = {}  # pod -> since when its sidecar does not answer
        self._timers = Timers()
        self._wake = asyncio.Event()
        self._tasks = Tasks()
        world.sandbox_listeners.append(self._on_sandbox)

    async def run(self) -> None:
        """Run until cancelled; call this after the watches are synced."""
        try:
            while True:
                self._wake.clear()
                for name in self._timers.pop_due(self._world.clock()):
                    self._look(name)
                due = self._timers.next_at()
                wait = None if due is None else max(0.0, due - self._world.clock())
                await wait_set(self._wake, seconds=wait)
        finally:
            await self._tasks.close()

    def _on_sandbox(self, sandbox: Sandbox, gone: bool) -> None:
        generation, pod = sandbox.spec.generation, sandbox.instance_id
        if gone or generation is None or sandbox.status.phase is not SandboxPhase.ENDED:
            return
        known = self._ended.get(pod)
        if known is not None and known.generation >= generation:
            return
        self._ended[pod] = _Ended(generation, sandbox.spec.sandbox_id)
        self._silent.pop(pod, None)
        self._timers.drop(pod)  # that of an earlier end is due too early
        self._set(pod, self._world.clock() + self._grace)

    def _set(self, pod: str, at: float) -> None:
        self._timers.set(pod, at)
        self._wake.set()

    def _look(self, name: str) -> None:
        pod, ended = self._world.pods.get(name), self._ended.get(name)
        if ended is None:
            return
        if pod is None or pod.sidecar_host is None or self._is_over(pod):
            self._forget(name)
            return
        if not self._tasks.spawn(name, self._ask(pod, pod.sidecar_host, ended)):
            self._set(name, self._world.clock() + _RETRY)  # it is still asked after an earlier end

    def _is_over(self, pod: Pod) -> bool:
        """Return whether the pod has another owner, or is about to go."""
        return (
            pod.metadata.deletion_timestamp is not None
            or self._deletion.is_asked(pod)
            or pod.metadata.name in self._world.claims
        )

    def _forget(self, pod: str) -> None:
        self._ended.pop(pod, None)
        self._silent.pop(pod, None)

    async def _ask(self, pod: Pod, address: str, ended: _Ended) -> None:
        name = pod.metadata.name
        token = self._tokens.of(pod)
        try:
            owner = await self._sidecars.owner(address, token=token)
            if owner is not None and owner.sandbox_id == ended.owner:
                _log.warning("ending %s: %s", name, _MESSAGE)
                await self._sidecars.end(
                    address,
                    token=token,
                    verdict=SandboxVerdict.DELETED,
                    message=_MESSAGE,
                    only_of=ended.owner,
                )
        except SidecarUntrusted as error:
            # It may serve its next owner, and the fault may be the controller's own certificate.
            _log.info("could not ask who owns %s, trying again: %s", name, error)
            if self._ended.get(name) is ended:
                self._silent.pop(name, None)
                self._set(name, self._world.clock() + _RETRY)
            return
        except SidecarUnreachable as error:
            if self._ended.get(name) is not ended:
                return  # the next sandbox in this pod has ended meanwhile
            now = self._world.clock()
            since = self._silent.setdefault(name, now)
            # While the watch of Sandboxes fails, it may have another owner.
            if now < max(since, self._world.complete_since(Sandbox)) + self._grace:
                self._set(name, now + _RETRY)
                return
            if not self._is_over(pod):
                _log.warning(
                    "deleting %s, whose sidecar does not answer after its sandbox's end: %s", name, error
                )
                self._deletion.delete(pod)
        if self._ended.get(name) is ended:
            self._forget(name)
