"""What the API server has of our resources, as watches show it, and waiting until it is as a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandlot_kube import paths
from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod, Sandbox, SandboxPool
from sandlot_kube.reflector import Reflector

from tests.waiting import SECONDS

TIMEOUT = SECONDS


class Watched:
    """Pods, sandboxes and pools of a namespace by their names."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.namespace = client.namespace
        self.pods: dict[str, Pod] = {}
        self.sandboxes: dict[str, Sandbox] = {}
        self.pools: dict[str, SandboxPool] = {}
        self._news = asyncio.Event()

    @asynccontextmanager
    async def watching(self, *, pod_changed: Callable[[Pod], None]) -> AsyncIterator[None]:
        following = [
            asyncio.create_task(self._follow(paths.pods(self.namespace), Pod, self.pods, pod_changed).run()),
            asyncio.create_task(self._follow(paths.sandboxes(self.namespace), Sandbox, self.sandboxes).run()),
            asyncio.create_task(self._follow(paths.pools(self.namespace), SandboxPool, self.pools).run()),
        ]
        try:
            yield
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    async def until(self, condition: Callable[[], object], what: str, *, timeout: float = TIMEOUT) -> None:
        """Looks again after every change in the cluster."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            lines = [
                *(f"pod {name} {pod.spec.node_name} {pod.status.phase}" for name, pod in self.pods.items()),
                *(f"sandbox {name} {one.status}" for name, one in self.sandboxes.items()),
                *(f"pool {name} {one.status}" for name, one in self.pools.items()),
            ]
            raise AssertionError("\n".join([f"not within {timeout:g} s: {what}", *lines])) from error

    def _follow(
        self, path: str, item: Any, known: dict[str, Any], then: Callable[[Any], None] = lambda _: None
    ) -> Reflector[Any]:
        def changed(thing: Any) -> None:
            known[thing.metadata.name] = thing
            then(thing)
            self._news.set()

        def deleted(thing: Any) -> None:
            known.pop(thing.metadata.name, None)
            self._news.set()

        def replaced(things: list[Any]) -> None:
            for name in known.keys() - {thing.metadata.name for thing in things}:
                del known[name]
            for thing in things:
                changed(thing)

        return Reflector(self.client, path, item=item, replaced=replaced, changed=changed, deleted=deleted)
