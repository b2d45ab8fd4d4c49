"""Has the pods of a cordoned node end with their owners, so that the node empties while its pool is in use."""

from __future__ import annotations

import asyncio
import logging

from sandlot_kube import reuse
from sandlot_kube.objects import Pod

from ..tokens import InstanceTokens
from ..world.world import World
from .drains import is_drained_of
from .pod_deletion import PodDeletion
from .sidecars import Sidecars, SidecarUnreachable
from .tasks import Tasks

_log = logging.getLogger(__name__)
_RETRY = 5.0  # seconds between two attempts to reach a sidecar


class NodeDrains:
    """Tells the sidecar of each claimed pod once. The plan of the pools retires those without an owner.

    Without it a gateway would reset such a pod for its next owner, and a drain would never end.
    """

    def __init__(
        self, world: World, *, deletion: PodDeletion, tokens: InstanceTokens, sidecars: Sidecars
    ) -> None:
        self._world = world
        self._deletion = deletion
        self._tokens = tokens
        self._sidecars = sidecars
        self._told: set[str] = set()
        self._tasks = Tasks()
        world.pod_listeners.append(self._on_pod)
        world.claim_listeners.append(self._look)

    async def close(self) -> None:
        await self._tasks.close()

    def _on_pod(self, pod: Pod, gone: bool) -> None:
        if gone:
            self._told.discard(pod.metadata.name)
        else:
            self._look(pod.metadata.name)

    def _look(self, name: str) -> None:
        if name not in self._told and self._untold(name) is not None:
            self._tasks.spawn(name, self._tell(name))

    def _untold(self, name: str) -> Pod | None:
        """Return the pod if it has an owner after whom nobody may get it, else None."""
        pod = self._world.pods.get(name)
        if pod is None or pod.metadata.deletion_timestamp is not None or self._deletion.is_asked(pod):
            return None
        last = is_drained_of(pod, self._world) and reuse.is_reused(pod) and self._world.claimed(name)
        return pod if last and pod.sidecar_host is not None else None

    async def _tell(self, name: str) -> None:
        while (pod := self._untold(name)) is not None and pod.sidecar_host is not None:
            try:
                await self._sidecars.end_with_owner(pod.sidecar_host, token=self._tokens.of(pod))
            except SidecarUnreachable as error:
                _log.info("the node of %s is drained, but its sidecar does not answer: %s", name, error)
                await asyncio.sleep(_RETRY)
                continue
            # One that has ended exits, and whoever waits for its verdict deletes the pod.
            if name in self._world.pods:
                self._told.add(name)
            return
