"""Periodic maintenance of instances: overdue starts, large logs, remains of removed instances."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract.ids import InstanceId
from sandlot_contract.verdicts import SandboxVerdict

from .background import Background
from .entries import Entry
from .launcher import bound_log, last_words
from .layout import Layout
from .records import load_record
from .remover import Remover

log = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self,
        entries: dict[InstanceId, Entry],
        *,
        background: Background,
        remover: Remover,
        layout: Layout,
        every: float,
        start_timeout: float,
    ) -> None:
        """Run `every` so many seconds; end instances that are not ready within `start_timeout` seconds."""
        self._entries = entries
        self._background = background
        self._remover = remover
        self._layout = layout
        self._every = every
        self._start_timeout = start_timeout

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            for part in (self._end_overdue, self._bound_logs, self._remove_remains):
                try:
                    await part()
                except Exception:
                    log.exception("upkeep of instances failed, trying again in %g s", self._every)

    async def _end_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for entry in list(self._entries.values()):
            if entry.leaving is None and not self._remover.has_started(entry.instance.id):
                self._end_if_overdue(entry, now)

    async def _bound_logs(self) -> None:
        for entry in list(self._entries.values()):
            await self._background.in_thread(bound_log, entry.directory)

    async def _remove_remains(self) -> None:
        for directory in await self._background.in_thread(self._layout.instance_dirs):
            # They could not be removed then: a process may have been stuck in the kernel.
            if directory.id not in self._entries:
                await self._remover.clear(directory, load_record(directory.record), search=True)

    def _end_if_overdue(self, entry: Entry, now: float) -> None:
        if now - entry.began < self._start_timeout:
            return
        tail = last_words(entry.directory)
        message = f"the sandbox was not ready within {self._start_timeout:g} s" + (
            f": {tail}" if tail else ""
        )
        self._remover.lost(entry, verdict=SandboxVerdict.START_FAILED, message=message)
