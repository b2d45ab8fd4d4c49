"""A reflector that follows the pods of a scripted API server, and what its callbacks were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandlot_kube.client import KubeClient
from sandlot_kube.objects import Pod
from sandlot_kube.reflector import Reflector

from tests.kube.scripted import Scripted
from tests.waiting import SECONDS

PATH = "/api/v1/namespaces/default/pods"


class Seen:
    """What the callbacks were told, in order; `until` waits for the last of them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self._news = asyncio.Event()

    def replaced(self, pods: list[Pod]) -> None:
        self._tell("all", [pod.metadata.name for pod in pods])

    def changed(self, pod: Pod) -> None:
        self._tell("changed", pod.metadata.name)

    def deleted(self, pod: Pod) -> None:
        self._tell("deleted", pod.metadata.name)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def _tell(self, kind: str, what: Any) -> None:
        self.told.append((kind, what))
        self._news.set()


@asynccontextmanager
async def following(client: KubeClient, **options: Any) -> AsyncIterator[tuple[Reflector[Pod], Seen]]:
    seen = Seen()
    reflector = Reflector(
        client,
        PATH,
        item=Pod,
        **{
            "replaced": seen.replaced,
            "changed": seen.changed,
            "deleted": seen.deleted,
            "shortest_wait": 0.01,
            "longest_wait": 0.05,
            **options,
        },
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


async def requests(script: Scripted, count: int, *, watch: bool) -> list[dict[str, str]]:
    async with asyncio.timeout(SECONDS):
        while len(found := script.queries(watch=watch)) < count:
            script.asked.clear()
            await script.asked.wait()
    return found
