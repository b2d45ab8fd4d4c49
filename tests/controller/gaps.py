"""A client whose watches a test breaks, and whose lists it holds up or refuses: the controller sees a part of the world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from sandlot_kube.client import KubeClient
from sandlot_kube.errors import KubeError, KubeUnreachable


class Gaps(KubeClient):
    """Collections by their paths: those in `held` are not listed before `go_on`, and `broken` ones are not watched.

    The watches of `silent` ones stay open and tell nothing. Lists of `refused` ones are answered with that status.
    """

    def __init__(self, of: KubeClient) -> None:
        super().__init__(of.access)
        self.held: set[str] = set()
        self.refused: dict[str, int] = {}
        self.refusals = 0
        self.broken: set[str] = set()
        self.silent: set[str] = set()
        self.failing = asyncio.Event()  # a watch has met its break
        self.read: set[str] = set()  # collections and objects that were listed or read
        self._changed = asyncio.Event()

    def go_on(self) -> None:
        self.held.clear()
        self._tell()

    def break_off(self, path: str) -> None:
        """Cut the watch of a collection, until `mend`."""
        self.broken.add(path)
        self.failing.clear()
        self._tell()

    def mend(self) -> None:
        self.broken.clear()
        self.silent.clear()
        self._tell()

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        while method == "GET" and path in self.held:
            await self._changed.wait()
        if method == "GET" and (status := self.refused.get(path)) is not None:
            self.refusals += 1
            raise KubeError(status=status, message=f"the test refuses {path}")
        if method == "GET":
            self.read.add(path)
        return await super().request(method, path, **more)

    async def lines(self, path: str, **more: Any) -> AsyncGenerator[bytes, None]:
        lines = super().lines(path, **more)
        try:
            while True:
                self._fail(path)
                following = asyncio.ensure_future(anext(lines))
                try:
                    while not following.done() or path in self.silent:
                        self._fail(path)
                        news = asyncio.ensure_future(self._changed.wait())
                        awaited = [news] if following.done() else [following, news]
                        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                        news.cancel()
                    yield following.result()
                except StopAsyncIteration:
                    return
                finally:
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
        finally:
            await lines.aclose()

    def _fail(self, path: str) -> None:
        if path in self.broken:
            self.failing.set()
            raise KubeUnreachable(f"the watch of {path} is broken by the test")

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
