"""Asks the API server for each silent node before it counts as lost: the watch may be late to show that it is back."""

from __future__ import annotations

import asyncio
import logging

import msgspec
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod
from sandlot_kube.waiting import wait_set

from ..settings import Settings
from ..world.nodes import is_silent
from ..world.world import World
from .api import Api, refused

_log = logging.getLogger(__name__)
_BEAT = 0.25  # seconds between two looks without news: an answer may leave a node as due as it was
_PAUSE = 1.0  # seconds after a request that failed
_AT_ONCE = 16  # requests, when a whole zone is silent


class LostNodes:
    def __init__(self, world: World, api: Api, *, settings: Settings) -> None:
        self._world = world
        self._api = api
        self._grace = settings.node_grace
        self._wake = asyncio.Event()
        self._asking = asyncio.Semaphore(_AT_ONCE)
        world.node_listeners.append(lambda _: self._wake.set())
        world.pod_listeners.append(self._on_pod)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._wake.clear()
            nodes = self._world.silence.unconfirmed(grace=self._grace)
            await asyncio.gather(*map(self._ask, nodes))
            due = self._world.silence.next_at(grace=self._grace)
            await wait_set(self._wake, seconds=None if due is None else max(_BEAT, due - self._world.clock()))

    def _on_pod(self, pod: Pod, _: bool) -> None:
        """Handle the pod of a node that no watch has shown."""
        if pod.spec.node_name in self._world.silent_since:
            self._wake.set()

    async def _ask(self, name: str) -> None:
        async with self._asking:
            if (before := self._world.silent_since.get(name)) is None:
                return
            try:
                is_lost = await self._is_lost(name)
            except KubeError as error:
                _log.warning("cannot tell whether node %s is lost, asking again: %s", name, error)
                await asyncio.sleep(max(_PAUSE, error.retry_after or 0.0))
                return
        if self._world.silent_since.get(name) != before:
            return  # the watch was faster
        if is_lost:
            self._world.confirm_silence(name)
        else:
            _log.warning("node %s is not lost: its watch is late to show that it is back", name)
            self._world.silence.again(name)

    async def _is_lost(self, name: str) -> bool:
        """Return whether the API server, too, calls it silent; if it tells us nothing of nodes, the watch's word stands."""
        try:
            node = await self._api.node(name)
        except (KubeError, msgspec.DecodeError) as error:
            if isinstance(error, KubeError) and not refused(error):
                raise
            _log.warning("node %s counts as lost by its watch alone: %s", name, error)
            return True
        return node is None or is_silent(node)
