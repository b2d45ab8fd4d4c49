"""Ends claimed pods whose Sandbox record never appears."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import names
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube.objects import Pod

from ..settings import Settings
from ..tokens import InstanceTokens
from ..world.world import World
from .pod_deletion import PodDeletion
from .sidecars import Sidecars, SidecarUnreachable
from .tasks import Tasks

_log = logging.getLogger(__name__)
_LONGEST_PAUSE = 5.0  # seconds between two looks
_FIRST_ANSWERS = 2.0  # seconds for sidecars to answer before pools are planned without them
_CONCURRENT = 32
_MESSAGE = "its Sandbox was deleted"


class UnrecordedClaims:
    """Waits for another gateway to record the claim, at the sidecar's next heartbeat, if the claiming one died.

    If none does, the Sandbox was deleted while no controller ran, and the pod is deleted, too.
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
        self._grace = settings.record_grace
        self._tokens = tokens
        self._sidecars = sidecars
        self._tasks = Tasks()
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._unasked: set[str] = set()
        self.settled = asyncio.Event()  # a pool planned before this would count claimed pods as warm

    async def run(self) -> None:
        """Run until cancelled; call this after the watches are synced, as only pods from before are asked."""
        self._unasked = {
            name for name, pod in self._world.pods.items() if names.LABEL_POOL in pod.metadata.labels
        }
        pause = min(_LONGEST_PAUSE, max(0.1, self._grace / 4))
        try:
            self._look()
            await self._tasks.wait(seconds=_FIRST_ANSWERS)
            self.settled.set()
            while True:
                self._look()
                await asyncio.sleep(pause)
        finally:
            await self._tasks.close()

    def _look(self) -> None:
        world = self._world
        for name in list(self._unasked):
            pod = world.pods.get(name)
            if pod is None or pod.status.pod_ip is None or world.claimed(name) or self._is_leaving(pod):
                self._unasked.discard(name)
            else:
                self._tasks.spawn(f"ask {name}", self._ask(name, pod.status.pod_ip))
        overdue = world.clock() - self._grace
        for name, since in list(world.unrecorded_since.items()):
            pod = world.pods.get(name)
            if since <= overdue and pod is not None and not self._is_leaving(pod):
                self._tasks.spawn(f"end {name}", self._end(pod))

    async def _ask(self, name: str, address: str) -> None:
        try:
            async with self._slots:
                claimed = await self._sidecars.is_claimed(address, token=self._tokens.instance(name))
        except SidecarUnreachable as error:
            _log.info("could not ask whether %s is claimed, trying again: %s", name, error)
            return
        self._unasked.discard(name)
        if claimed and not self._world.claimed(name):
            self._world.claimed_without_record(name)
            self._world.changed.set()

    async def _end(self, pod: Pod) -> None:
        name = pod.metadata.name
        _log.warning("ending %s: it was claimed, but no Sandbox named it for %g s", name, self._grace)
        if pod.status.pod_ip is not None:
            token = self._tokens.instance(name)
            try:
                await self._sidecars.end(
                    pod.status.pod_ip, token=token, verdict=SandboxVerdict.DELETED, message=_MESSAGE
                )
            except SidecarUnreachable as error:
                _log.info(
                    "deleting %s without its sidecar's agreement, as it did not respond: %s", name, error
                )
        self._deletion.delete(pod)

    def _is_leaving(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or self._deletion.is_asked(pod)
