"""Claimed pods that no Sandbox names: found by their sidecars' word, waited for, then ended."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract import names
from sandlot_kube.objects import Pod

from sandlot_controller.api import Api
from sandlot_controller.retry import until_done
from sandlot_controller.settings import Settings
from sandlot_controller.sidecar import Sidecars, SidecarUnreachable
from sandlot_controller.tasks import Tasks
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.world import World

_log = logging.getLogger(__name__)
_LOOK = 5.0  # seconds
_PATIENCE = 2.0
_AT_ONCE = 32
_MESSAGE = "its Sandbox is gone"


class Foundlings:
    """A claim whose gateway died gets its Sandbox from another one, at the sidecar's next heartbeat: that is waited
    for. Without one by then the Sandbox was deleted while no controller saw it, and the pod follows.
    """

    def __init__(
        self, world: World, api: Api, *, settings: Settings, tokens: InstanceTokens, sidecars: Sidecars
    ) -> None:
        self._world = world
        self._api = api
        self._grace = settings.record_grace
        self._tokens = tokens
        self._sidecars = sidecars
        self._tasks = Tasks()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._unasked: set[str] = set()
        self.settled = asyncio.Event()  # a pool planned before it would take claimed pods for warm ones

    async def run(self) -> None:
        """Until cancelled. Call it when the watches are synced: only what was there before us is asked."""
        self._unasked = {
            name for name, pod in self._world.pods.items() if names.LABEL_POOL in pod.metadata.labels
        }
        pause = min(_LOOK, max(0.1, self._grace / 4))
        try:
            self._look()
            await self._tasks.wait(seconds=_PATIENCE)
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
            if pod is None or pod.status.pod_ip is None or world.claimed(name) or _leaves(pod):
                self._unasked.discard(name)
            else:
                self._tasks.spawn(f"ask {name}", self._ask(name, pod.status.pod_ip))
        overdue = world.clock() - self._grace
        for name, since in list(world.words.items()):
            pod = world.pods.get(name)
            if since <= overdue and pod is not None and not _leaves(pod):
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
            self._world.claimed_by_word(name)
            self._world.changed.set()

    async def _end(self, pod: Pod) -> None:
        name = pod.metadata.name
        _log.warning("%s is claimed and no Sandbox names it for %g s: it is ended", name, self._grace)
        if pod.status.pod_ip is not None:
            token = self._tokens.instance(name)
            try:
                await self._sidecars.end(pod.status.pod_ip, token=token, verdict="deleted", message=_MESSAGE)
            except SidecarUnreachable as error:
                _log.info("%s is deleted without its sidecar's word: %s", name, error)
        await until_done(lambda: self._api.delete_pod(pod))


def _leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None
