"""Takes over the instances of the previous gateway and removes those that have died."""

from __future__ import annotations

import asyncio
import logging

from sandlot_contract.ids import InstanceId
from sandlot_contract.phases import Phase
from sandlot_contract.verdicts import SandboxVerdict

from ...core.backend import Events
from ...core.instances import Instance
from ...core.slot import Loss
from ...data.pool import HttpPool
from ...tokens import Tokens
from .background import Background
from .discovery import Dead, Living, examine
from .entries import Entry
from .layout import InstanceDir, Layout
from .planner import Planner
from .processes import sidecar_configs
from .remover import Remover

log = logging.getLogger(__name__)


class Takeover:
    def __init__(
        self,
        entries: dict[InstanceId, Entry],
        *,
        background: Background,
        planner: Planner,
        remover: Remover,
        layout: Layout,
        tokens: Tokens,
        pool: HttpPool,
        patience: float,
    ) -> None:
        """`patience`: seconds for a sidecar to answer."""
        self._entries = entries
        self._background = background
        self._planner = planner
        self._remover = remover
        self._layout = layout
        self._tokens = tokens
        self._pool = pool
        self._patience = patience

    async def run(self, events: Events) -> None:
        """Take over or remove all instances, many concurrently."""
        limit = asyncio.Semaphore(64)

        async def look(directory: InstanceDir) -> None:
            token = self._tokens.instance(directory.id)
            async with limit:
                found = await examine(directory, token=token, pool=self._pool, patience=self._patience)
                if isinstance(found, Living):
                    self._adopt(found, token, events)
                else:
                    await self._bury(found, events)

        directories = {directory.path: directory for directory in self._layout.instance_dirs()}
        # A running sidecar's directory may have been removed.
        for config in await self._background.in_thread(sidecar_configs, self._layout.instances):
            directories.setdefault(config.parent, InstanceDir(config.parent))
        async with asyncio.TaskGroup() as group:
            for directory in directories.values():
                group.create_task(look(directory))

    def _adopt(self, found: Living, token: str, events: Events) -> None:
        record, directory = found.record, found.directory
        loop = asyncio.get_running_loop()
        instance = Instance(
            record.id, record.template, directory.address, token, record.pool, record.created_at
        )
        entry = Entry(instance, directory, record, began=loop.time())
        entry.mounts_copies = found.state.get("mounts_copies") is True
        entry.spawned.set()
        self._entries[record.id] = entry
        if found.state.get("phase") == Phase.STARTING and record.pool is not None:
            self._planner.began(record.pool, record.id)
        entry.watch(found.pidfd, process=None, on_exit=self._remover.exited)
        events.instance_found(instance, found.state)

    async def _bury(self, found: Dead, events: Events) -> None:
        log.info("instance %s is dead (%s), clearing it away", found.directory.id, found.why)
        await self._remover.clear(found.directory, found.record, search=True)
        message = f"the sandbox was lost while no gateway ran: {found.why}"
        events.instance_lost(found.directory.id, Loss(SandboxVerdict.SIDECAR_LOST, message))
