"""Removes instances: those whose owner is done, and those that died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from sandlot_contract.ids import InstanceId
from sandlot_contract.stop_grace import MAX_STOP_GRACE, is_stopping
from sandlot_contract.verdicts import SandboxVerdict

from ...core.backend import Events
from ...core.slot import Loss, Phase
from ...data.pool import HttpPool, PoolError
from ...sidecars import document
from .background import Background
from .cgroups import Cgroups
from .entries import Entry
from .keeper import PoolKeeper
from .launcher import last_words
from .layout import InstanceDir
from .records import Record, load_record
from .remains import remove_remains
from .sidecar_calls import post

log = logging.getLogger(__name__)
_TO_KILL = 2.0  # seconds for a killed sidecar's processes, groups and files to be removed


class Remover:
    def __init__(
        self,
        entries: dict[InstanceId, Entry],
        *,
        background: Background,
        keeper: PoolKeeper,
        cgroups: Callable[[], Cgroups],
        pool: HttpPool,
        end_grace: float,
    ) -> None:
        """`end_grace`: seconds for the `ended` webhook once everything in the sandbox is dead."""
        self._entries = entries
        self._background = background
        self._keeper = keeper
        self._cgroups = cgroups
        self._pool = pool
        self._end_grace = end_grace
        self._events: Events | None = None
        # The GPUs of what could not be removed: a process of it, stuck in the kernel, may have them open.
        self.gpus_left: dict[InstanceId, list[int]] = {}

    def listen(self, events: Events) -> None:
        """Report lost instances to `events` from now on."""
        self._events = events

    def has_started(self, instance_id: InstanceId) -> bool:
        """Return whether its sidecar has reported since its start or last reset."""
        phase = self._events.phase(instance_id) if self._events is not None else None
        return phase not in (None, Phase.UNREPORTED)

    def is_ending(self, instance_id: InstanceId) -> bool:
        """Return whether its owner is done and no next generation has reported."""
        return self._events is not None and self._events.phase(instance_id) is Phase.ENDING

    def exited(self, entry: Entry) -> None:
        """Handle the exit of a process, which is a loss unless the entry is being removed."""
        if entry.leaving is not None or self._events is None:
            return
        tail = last_words(entry.directory)
        code = "" if entry.exit_code is None else f" with status {entry.exit_code}"
        started = self.has_started(entry.instance.id)
        verb = "ended" if started else "ended before it was ready"
        message = f"the sidecar {verb}{code}" + (f": {tail}" if tail else "")
        self.lost(
            entry,
            verdict=SandboxVerdict.SIDECAR_LOST if started else SandboxVerdict.START_FAILED,
            message=message,
        )

    def lost(self, entry: Entry, *, verdict: str, message: str) -> None:
        instance = entry.instance
        if instance.pool is not None and self._keeper.planner.is_pending(instance.id):
            now = asyncio.get_running_loop().time()
            self._keeper.planner.failed(instance.pool, instance.id, now=now, message=message)
        self.destroy_soon(instance.id)
        if self._events is not None:
            self._events.instance_lost(instance.id, Loss(verdict, message))

    def destroy_soon(self, instance_id: InstanceId) -> None:
        self._background.spawn_removal(self.destroy(instance_id), name=f"destroy {instance_id}")

    async def destroy(self, instance_id: InstanceId) -> None:
        entry = self._entries.get(instance_id)
        if entry is None:
            return
        if entry.leaving is None:
            entry.leaving = self._background.spawn_removal(
                self._take_away(entry), name=f"destroy {instance_id}"
            )
        await asyncio.shield(entry.leaving)

    async def finish(self, *, timeout: float) -> None:
        """Wait up to `timeout` seconds for all removals, and kill the sidecars that have not ended before its end."""
        to_kill = min(_TO_KILL, timeout / 2)
        if not await self._background.removed(timeout=timeout - to_kill):
            for entry in self._leaving():
                if not entry.exited.is_set():
                    log.warning("instance %s: its sidecar does not end, killing it", entry.instance.id)
                    entry.kill()
            await self._background.removed(timeout=to_kill)

    async def destroy_all(self, directories: Iterable[InstanceDir], *, timeout: float) -> None:
        """Remove all instances, also those of these directories that a start that was given up has not taken over."""
        for instance_id in list(self._entries):
            self.destroy_soon(instance_id)
        for directory in directories:
            if directory.id not in self._entries:
                work = self.clear(directory, load_record(directory.record), search=True)
                self._background.spawn_removal(work, name=f"remove {directory.id}")
        await self.finish(timeout=timeout)

    def log_left(self) -> None:
        """Log the instances whose removal has not ended."""
        for entry in self._leaving():
            process = entry.record.process
            log.warning(
                "instance %s, sidecar process %s: left behind, for the next start or `sandlot local clean`",
                entry.instance.id,
                "unknown" if process is None else process.pid,
            )

    def let_go(self) -> None:
        """Forget all instances, whose processes may live on."""
        for entry in self._entries.values():
            entry.unwatch()
        self._entries.clear()

    def _leaving(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.leaving is not None]

    async def clear(self, directory: InstanceDir, record: Record | None, *, search: bool) -> None:
        """Remove what is left of one. `search`: also scan for processes, if its sidecar did not end cleanly."""
        paths = [Path(text) for text in record.cgroups] if record is not None else []
        removed = await self._background.in_thread(
            remove_remains, directory, paths or self._cgroups().paths(directory.id), search
        )
        if not removed.problems:
            self.gpus_left.pop(directory.id, None)
        elif record is not None and record.gpus:
            self.gpus_left[directory.id] = record.gpus

    async def _take_away(self, entry: Entry) -> None:
        self._keeper.planner.gone(entry.instance.id)
        await entry.spawned.wait()
        clean = entry.exited.is_set() and entry.exit_code == 0
        if not entry.exited.is_set():
            clean = await self._end(entry)
        await self.clear(entry.directory, entry.record, search=not clean)
        self._entries.pop(entry.instance.id, None)
        self._keeper.wake()

    async def _end(self, entry: Entry) -> bool:
        """Ask the sidecar to end, then kill it; return whether it cleaned up after itself."""
        try:
            asked = await post(self._pool, entry, "/v1/end", b'{"verdict":"deleted"}', timeout=2.0)
        except PoolError:
            asked = None
        if asked is not None and asked.status == 200:
            grace = self._end_grace + (MAX_STOP_GRACE if is_stopping(document(asked)) else 0.0)
            if await entry.wait_exit(timeout=grace):
                return entry.exit_code in (0, None)
        entry.kill()
        await entry.wait_exit(timeout=5.0)
        return False
