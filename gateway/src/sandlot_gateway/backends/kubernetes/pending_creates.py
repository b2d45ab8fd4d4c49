"""Pending creates: a Sandbox resource each, so that every gateway knows them before they have an instance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sandlot_contract.ids import SandboxId
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock, ends
from sandlot_kube.client import KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox
from sandlot_kube.waiting import wait_set

from ...core.owners import PendingCreate
from .pending_create_requests import PendingCreateRequests
from .translate import asked_for, safe_name
from .writes import Writes, differ

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Work:
    """The writes to one resource. `pending_create` None: another gateway's, only ended or deleted here."""

    sandbox_id: SandboxId
    pending_create: PendingCreate | None
    there: bool = False
    paused: bool = False  # its claim record is being written
    done: bool = False
    dropped: bool = False
    ended: Ended | None = None
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def ending(self) -> bool:
        """Whether its end or its removal is to be written."""
        return self.dropped or self.ended is not None


@dataclass(frozen=True, slots=True)
class _Waiting:
    sandbox_id: SandboxId
    uid: str  # of its resource, as far as it was told
    shown: bool  # by a list or the watch, which may be behind the answer to a write


class PendingCreates:
    """Calls `found` for another gateway's pending create, and `over` for each that ends or is deleted.

    A pending create is valid for `lasts` seconds and renewed after half of them. `record_of` returns the name of a
    sandbox's claim record, if there is one.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        lasts: float,
        found: Callable[[SandboxId, dict[str, Any]], None],
        over: Callable[[SandboxId, Ended, dict[str, Any] | None], None],
        record_of: Callable[[SandboxId], str | None],
        refused: Callable[[str], None],
        writes: Writes,
    ) -> None:
        self._client = client
        self._requests = PendingCreateRequests(client, namespace=namespace, lasts=lasts)
        self._lasts = lasts
        self._found = found
        self._over = over
        self._record_of = record_of
        self._refused = refused
        self._writes = writes
        self._there: dict[str, _Waiting] = {}  # by resource name
        self._ended: set[str] = set()  # names of resources whose end was reported
        self._works: dict[str, _Work] = {}
        self._listed: list[tuple[str, str]] = []  # name and uid of those known when the last list began

    # Existing resources.

    def __contains__(self, name: object) -> bool:
        return name in self._there

    def has(self, sandbox_id: SandboxId) -> bool:
        """Return whether the sandbox has such a resource, or one being made."""
        name = safe_name(sandbox_id)
        return name in self._there or name in self._works

    def listing(self) -> None:
        """Note what a list that begins should show."""
        self._listed = [(name, waiting.uid) for name, waiting in self._there.items()]

    def replaced(self, names: Container[str]) -> None:
        """Handle a list, which has these `names`: those that it should show are deleted unless it does."""
        self._ended = {name for name in self._ended if name in names}
        for name, uid in self._listed:
            if name not in names:
                self.gone(name, uid=uid)

    def changed(self, sandbox: Sandbox, *, shown: bool = True) -> None:
        """Handle a pending create's resource: `shown` by a list or the watch, else read on a write."""
        name, sandbox_id = sandbox.metadata.name, sandbox.spec.sandbox_id
        if sandbox_id is None:
            return
        if (ended := ends.of(sandbox)) is not None:
            self._there.pop(name, None)
            self._finish(name)
            if name not in self._ended:
                self._ended.add(name)
                self._over(sandbox_id, ended, asked_for(sandbox))
        else:
            waiting = self._there.get(name)
            # During a gap in the watch it may have been made anew, and only this one's deletion will be shown.
            if waiting is None or (shown and (waiting.shown or waiting.uid == sandbox.metadata.uid)):
                self._there[name] = _Waiting(sandbox_id, sandbox.metadata.uid, shown)
            work = self._works.get(name)
            if waiting is not None or (work is not None and work.pending_create is not None):
                return
            if (request := asked_for(sandbox)) is not None:
                self._found(sandbox_id, request)

    def left(self, name: str) -> None:
        """Note that it has its instance."""
        self._there.pop(name, None)
        self._finish(name)

    def gone(self, name: str, *, uid: str) -> None:
        """Handle a deleted resource, with its `uid`: an end, unless the sandbox's claim record replaced it."""
        self._ended.discard(name)
        waiting = self._there.get(name)
        if waiting is None or differ(waiting.uid, uid):
            return  # what waits is a later resource of that name
        del self._there[name]
        self._finish(name)
        if self._record_of(waiting.sandbox_id) is None:
            at = clock.text(self._client.now())
            ended = Ended(SandboxVerdict.DELETED, at, message="its Sandbox was deleted")
            self._over(waiting.sandbox_id, ended, None)

    # Writes.

    async def make(self, pending_create: PendingCreate, *, timeout: float) -> None:
        """Write the resource; return after `timeout` seconds at most, while retries go on."""
        name = safe_name(pending_create.sandbox_id)
        work = self._works.get(name)
        if work is None:
            work = self._begin(name, _Work(pending_create.sandbox_id, pending_create))
        try:
            async with asyncio.timeout(timeout):
                await work.tried.wait()
        except TimeoutError:
            _log.warning(
                "a pending create is not known to other gateways yet",
                extra={"sandbox": pending_create.sandbox_id},
            )

    def claimed(self, sandbox_id: SandboxId) -> None:
        """Stop renewing: it has its instance. `settled` follows once the claim record is written."""
        if (work := self._works.get(safe_name(sandbox_id))) is not None:
            work.paused = True
            work.news.set()

    def settled(self, sandbox_id: SandboxId, *, elsewhere: bool) -> None:
        """Finish after the claim record is written; `elsewhere`: in another resource, so delete this one."""
        name = safe_name(sandbox_id)
        work = self._works.get(name)
        if not elsewhere:
            self.left(name)
        elif work is not None or name in self._there:
            work = work or self._begin(name, _Work(sandbox_id, None, there=True))
            work.dropped = True
            work.news.set()

    def end(self, sandbox_id: SandboxId, ended: Ended) -> None:
        """Write the end, whichever gateway made the resource. The first end counts; without a resource do nothing."""
        record = self._record_of(sandbox_id)
        name = record or safe_name(sandbox_id)
        work = self._works.get(name)
        # It may have an instance that has not reported here: then end its claim record.
        if work is None and (record is not None or name in self._there):
            work = self._begin(name, _Work(sandbox_id, None, there=True))
        if work is not None and work.ended is None:
            work.ended = ended
            work.news.set()

    def writing(self, sandbox_id: SandboxId) -> asyncio.Task[None] | None:
        """Return the task that writes its end or removal, if any."""
        # `end` writes into the claim record where there is one.
        for name in (self._record_of(sandbox_id), safe_name(sandbox_id)):
            work = self._works.get(name) if name is not None else None
            if work is not None and work.ending:
                return work.task
        return None

    async def close(self, *, timeout: float) -> None:
        """Write ends for `timeout` seconds at most; pending creates expire unless this gateway restarts."""
        ending = [work.task for work in self._works.values() if work.task and work.ending]
        if ending:
            await asyncio.wait(ending, timeout=timeout)
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside.

    def _begin(self, name: str, work: _Work) -> _Work:
        self._works[name] = work
        work.task = asyncio.get_running_loop().create_task(self._run(name, work))
        return work

    def _finish(self, name: str) -> None:
        work = self._works.get(name)
        if work is not None:
            work.done = True
            work.news.set()

    async def _run(self, name: str, work: _Work) -> None:
        try:
            while not work.done:
                work.news.clear()
                pause = await self._writes.taken(work.sandbox_id, name, partial(self._step, name, work))
                if not work.done:
                    await wait_set(work.news, seconds=pause)
        except KubeError as error:
            self._refused("pending_create")
            _log.error(
                "pending create %s was rejected by the API server; a crash would lose it: %s", name, error
            )
        finally:
            work.tried.set()
            if self._works.get(name) is work:
                del self._works[name]

    async def _step(self, name: str, work: _Work) -> float | None:
        """Send one or two requests; return the seconds until the next, or None to wait for news."""
        if work.done or (work.paused and not work.ending):
            return None
        if work.dropped:
            # Also without an answer to the create: it may have succeeded.
            await self._requests.delete(name)
            self._there.pop(name, None)
            work.done = True
        elif not work.there and work.pending_create is not None:
            await self._create(name, work, pending_create=work.pending_create)
        elif work.ended is not None:
            await self._requests.end(name, work.ended)
            self._there.pop(name, None)
            work.done = True
        else:
            await self._requests.renew(name)
        return 0.0 if work.ended is not None else self._lasts / 2

    async def _create(self, name: str, work: _Work, *, pending_create: PendingCreate) -> None:
        try:
            uid = await self._requests.create(name, pending_create)
        except KubeError as error:
            if error.status != 409:
                raise
            # Our own from before a lost answer or a restart; or its claim record, if it has an instance by now.
            there = await self._requests.find(name)
            work.there = True
            if there.spec.waits and ends.of(there) is None:
                await self._requests.renew(name)
            # Once it is done, the watch has shown more than this answer, such as the deletion.
            if there.spec.waits and not work.done:
                self.changed(there, shown=False)
        else:
            work.there = True
            if not work.done:  # likewise
                self._there[name] = _Waiting(pending_create.sandbox_id, uid, shown=False)
        work.tried.set()
