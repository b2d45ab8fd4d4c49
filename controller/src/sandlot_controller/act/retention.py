"""Deletes ended Sandboxes after their retention, those of one minute by one request."""

from __future__ import annotations

import asyncio
import logging

from sandlot_kube import clock, ends
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox
from sandlot_kube.waiting import wait_set

from .api import Api
from .retry import until_done
from .tasks import Tasks
from .timers import Timers

_log = logging.getLogger(__name__)
_AGAIN = 60.0  # seconds


class Retention:
    """Schedules deletions `seconds` after the end of the minute; `keep` and `gone` return at once."""

    def __init__(self, api: Api, *, seconds: float) -> None:
        self._api = api
        self._seconds = seconds
        self._kept: dict[str, dict[str, Sandbox]] = {}  # minute (or name, without one) -> Sandboxes by name
        self._due = Timers()  # due times of the same groups
        self._wake = asyncio.Event()
        self._tasks = Tasks()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                self._wake.clear()
                for group in self._due.pop_due(self._api.now()):
                    if not self._tasks.spawn(f"remove {group}", self._remove(group)):
                        self._due.set(group, self._api.now() + 1.0)
                due = self._due.next_at()
                # The wall clock may jump, so it is checked every minute.
                wait = 60.0 if due is None else min(60.0, max(0.0, due - self._api.now()))
                await wait_set(self._wake, seconds=wait)
        finally:
            await self._tasks.close()

    def keep(self, sandbox: Sandbox) -> None:
        """Schedule the deletion of an ended Sandbox."""
        group, due = self._group(sandbox)
        self._kept.setdefault(group, {})[sandbox.metadata.name] = sandbox
        self._due.set(group, due)
        self._wake.set()

    def gone(self, sandbox: Sandbox) -> None:
        group, _ = self._group(sandbox)
        kept = self._kept.get(group)
        if kept is not None:
            kept.pop(sandbox.metadata.name, None)
            if not kept:
                del self._kept[group]
                self._due.drop(group)

    def _group(self, sandbox: Sandbox) -> tuple[str, float]:
        status = sandbox.status
        try:
            return status.ended_in or "", ends.period_end(status.ended_in or "") + self._seconds
        except ValueError:
            ended_at = clock.seconds(status.ended_at) or self._api.now()
            return sandbox.metadata.name, ended_at + self._seconds

    async def _remove(self, group: str) -> None:
        kept = self._kept.get(group, {})
        if group not in kept:  # a minute is not a resource name
            try:
                await until_done(lambda: self._api.delete_period(group))
                return
            except KubeError as error:
                _log.info("deleting Sandboxes that ended in %s one by one: %s", group, error)
        for sandbox in list(kept.values()):
            try:
                await until_done(lambda one=sandbox: self._api.delete_sandbox(one))
            except KubeError as error:
                _log.warning("cannot delete Sandbox %s, trying again: %s", sandbox.metadata.name, error)
                self._due.set(group, self._api.now() + _AGAIN)
                self._wake.set()
                # Of all Sandboxes, not of this one: as many requests would change nothing.
                if error.status in (401, 403):
                    return
