"""Follows a pull by its lease: tells how far it is while it runs, and at its end how many bytes it fetched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from sandlot_node.engine import Count, Report
from sandlot_node.failures import ImageError
from sandlot_node.images import Progress

from .client import CallFailed, Missing
from .content import Blob, Content, layers_of


class Transfers:
    """The pulls that run.

    A pull fetched a blob if its lease holds it and the store has it since the pull began. Pulls that run at once can
    hold the same blob, which came once, so the first that ends counts it.
    """

    def __init__(self, content: Content, *, progress_seconds: float) -> None:
        self._content = content
        self._progress_seconds = progress_seconds
        self._begun: list[int] = []  # in nanoseconds, of each pull that runs
        self._counted: set[tuple[str, int]] = (
            set()
        )  # digest and age of blobs that a pull of these may hold, too

    @asynccontextmanager
    async def followed(self, lease: str, report: Report, count: Count) -> AsyncGenerator[None]:
        """Pull in this block: `report` gets its progress, and `count` the bytes of each blob at the end, even if it failed."""
        begun = time.time_ns()
        self._begun.append(begun)
        watch = asyncio.create_task(self._watch(lease, report))
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            try:
                # A containerd that is away does not tell; the pull's own error says so.
                with suppress(ImageError, CallFailed):
                    await self._count_fetched(lease, count, since=begun)
            finally:
                self._begun.remove(begun)
                oldest = min(self._begun, default=None)
                self._counted = {blob for blob in self._counted if oldest is not None and blob[1] >= oldest}

    async def _watch(self, lease: str, report: Report) -> None:
        layers: list[Blob] = []
        report(Progress("resolving"))
        while True:
            await asyncio.sleep(self._progress_seconds)
            with suppress(ImageError, CallFailed, Missing):
                if not layers:
                    for document in await self._content.leased_documents(lease):
                        layers = layers_of(document) or layers
                if layers:
                    report(await self._content.progress(layers))

    async def _count_fetched(self, lease: str, count: Count, *, since: int) -> None:
        for digest in await self._content.leased(lease):
            stored = await self._content.stored(digest)
            if stored is None or stored.created < since or (digest, stored.created) in self._counted:
                continue
            # Together: what breaks off in between would be counted by nobody.
            self._counted.add((digest, stored.created))
            count(stored.size)
