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
_FIRST_ANSWERS = 2.0  # seconds in which sidecars are to answer before pools are planned without them
_CONCURRENT = 32
_MESSAGE = "its Sandbox is gone"


class UnrecordedClaims:
    """A claim whose gateway died gets its Sandbox from another one, at the sidecar's next heartbeat: that is waited
    for. Without one by then the Sandbox was deleted while no controller saw it, and the pod follows.
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
        self.settled = asyncio.Event()  # a pool planned before it would take claimed pods for warm ones

    async def run(self) -> None:
        """Until cancelled. Call it when the watches are synced: only what was there before us is asked."""
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
            _log.info("%s is asked again whether it is claimed: %s", name, error)
            return
        self._unasked.discard(name)
        if claimed and not self._world.claimed(name):
            self._world.claimed_without_record(name)
            self._world.changed.set()

    async def _end(self, pod: Pod) -> None:
        name = pod.metadata.name
        _log.warning("%s is claimed and no Sandbox names it for %g s: it is ended", name, self._grace)
        if pod.status.pod_ip is not None:
            token = self._tokens.instance(name)
            try:
                await self._sidecars.end(
                    pod.status.pod_ip, token=token, verdict=SandboxVerdict.DELETED, message=_MESSAGE
                )
            except SidecarUnreachable as error:
                _log.info("%s is deleted though its sidecar did not answer: %s", name, error)
        self._deletion.delete(pod)

    def _is_leaving(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or self._deletion.is_asked(pod)
