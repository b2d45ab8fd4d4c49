"""Deletes what builds leave: old records, logs and archives, and files of templates that no tag names any more.

It begins with the gateway: one that died may have left something of which no later build would remind.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from sandlot_gateway.control.checkpoints import checkpoints_of
from sandlot_gateway.control.errors import ApiError
from sandlot_gateway.control.services import Services
from sandlot_gateway.tasks import Tasks, in_thread

from .archives import sweep
from .records import BuildRecord, Records, State

_log = logging.getLogger(__name__)

FORMER_KEPT = 3600.0  # seconds for creates that have just read a tag
END_WITHIN = 5.0  # seconds of a stop, for threads that a stalled volume holds
_EVERY = 600.0  # seconds


class Sweeper:
    def __init__(self, have: Services, records: Records) -> None:
        self._have = have
        self._records = records
        self._tasks = Tasks()

    def start(self) -> None:
        """Sweep now, and from time to time."""
        self._tasks.spawn(self._run())

    async def close(self) -> None:
        await self._tasks.close(end_within=END_WITHIN)

    async def forget_former(self, template: str, *, tenant: str) -> None:
        """Delete the checkpoints of a template that no tag has named for a while; a later sweep repeats what fails."""
        try:
            await self._forget_former(template, tenant=tenant)
        except (OSError, ApiError) as error:
            _log.error("cannot delete old files of template %s: %s; look at the volume", template, error)

    async def discard(self, build: BuildRecord) -> None:
        """Delete the files of a build that failed, whose lock is held, unless its template has them.

        Raises OSError, ApiError.
        """
        if build.state is not State.ERROR or build.checkpoint is None:
            return
        if not await asyncio.to_thread(self._records.has_files, build):
            checkpoints = checkpoints_of(self._have)
            found = await checkpoints.get(build.tenant, build.checkpoint)
            if found is not None:
                await checkpoints.delete(found)
        build.checkpoint = None
        await in_thread(self._records.save, build)

    async def _forget_former(self, template: str, *, tenant: str) -> None:
        checkpoints = checkpoints_of(self._have)
        before = time.time() - FORMER_KEPT
        record = await asyncio.to_thread(self._records.stored, template, tenant=tenant)
        if record is None:
            return
        old = {one for one, since in record.former.items() if since < before}
        if not old and not record.deleted:
            return
        for checkpoint_id in old:
            found = await checkpoints.get(tenant, checkpoint_id)
            if found is not None:
                await checkpoints.delete(found)
        # Only now: a gateway that dies before would leave files that nothing names.
        await asyncio.to_thread(self._records.forget, template, tenant=tenant, checkpoints=old)

    async def _discard_left(self, left: BuildRecord) -> None:
        """Delete the files of a build that failed, or whose gateway died; a later sweep repeats what fails."""
        try:
            build = await asyncio.to_thread(self._records.build, left.template, left.id, tenant=left.tenant)
            if build is None or build.state is not State.ERROR:
                return
            lock = await asyncio.to_thread(self._records.lock, build)
            if lock is not None:  # else its gateway is about to do it
                with lock:
                    await self.discard(build)
        except (OSError, ApiError) as error:
            _log.error("cannot delete the files of build %s: %s; look at the volume", left.id, error)

    async def _run(self) -> None:
        while True:
            try:
                directories = await asyncio.to_thread(self._records.tenants)
            except OSError as error:
                _log.error("cannot look for what old builds left: %s; look at the volume", error)
                directories = []
            for directory in directories:
                await self._sweep(directory)
            await asyncio.sleep(_EVERY)

    async def _sweep(self, directory: Path) -> None:
        """Sweep one tenant's directory; another one's is swept though this fails."""
        try:
            await asyncio.to_thread(self._records.sweep, directory)
            await asyncio.to_thread(sweep, directory)
            for template in await asyncio.to_thread(self._records.templates, directory):
                await self.forget_former(template.id, tenant=template.tenant)
            for build in await asyncio.to_thread(self._records.with_files, directory):
                await self._discard_left(build)
        except (OSError, ApiError) as error:
            _log.error("cannot delete what old builds left in %s: %s; look at the volume", directory, error)
        except Exception:  # else no later sweep would come
            _log.exception("the sweep of %s failed in an unexpected way", directory)
