"""Sandboxes that a caller knows and that have no instance yet: a resource each, so that every gateway knows them too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from sandlot_contract.ids import SandboxId
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock, ends, paths
from sandlot_kube.client import KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox, SandboxState
from sandlot_kube.waiting import wait_set

from ...core.owners import Promise
from .translate import asked_for, safe_name, sandbox_body, to_kube
from .writes import Writes, unless_ended, unless_missing

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Work:
    """What is wanted of one resource. `promise` None: another gateway's, which is only ended or taken away."""

    sandbox_id: SandboxId
    promise: Promise | None
    there: bool = False
    paused: bool = False  # it has its instance, whose record is being written
    done: bool = False
    dropped: bool = False
    ended: Ended | None = None
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def ending(self) -> bool:
        """Its end or its removal is to be written, whatever else was wanted."""
        return self.dropped or self.ended is not None


class Promises:
    """`found` hears of another gateway's promise, `over` of each whose end or deletion is seen.

    A promise holds for `lasts` seconds and is renewed when half of them are over. `record_of` names the resource that
    tells of a sandbox's instance, if there is one.
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
        self._namespace = namespace
        self._lasts = lasts
        self._found = found
        self._over = over
        self._record_of = record_of
        self._refused = refused
        self._writes = writes
        self._there: dict[str, SandboxId] = {}  # by name: the ids of those that wait
        self._ended: set[str] = set()  # names of those whose end was told
        self._works: dict[str, _Work] = {}  # by name

    # What is there.

    def __contains__(self, name: object) -> bool:
        return name in self._there

    def has(self, sandbox_id: SandboxId) -> bool:
        """Also one that is about to be made."""
        name = safe_name(sandbox_id)
        return name in self._there or name in self._works

    def names(self) -> list[str]:
        return [*self._there, *self._ended]

    def changed(self, sandbox: Sandbox) -> None:
        """A resource that waits for its instance."""
        name, sandbox_id = sandbox.metadata.name, sandbox.spec.sandbox_id
        if sandbox_id is None:
            return
        ended = ends.of(sandbox)
        if ended is not None:
            self._there.pop(name, None)
            self._finish(name)
            if name not in self._ended:
                self._ended.add(name)
                self._over(sandbox_id, ended, asked_for(sandbox))
        elif name not in self._there:
            self._there[name] = sandbox_id
            work = self._works.get(name)
            if work is not None and work.promise is not None:
                return
            request = asked_for(sandbox)
            if request is not None:
                self._found(sandbox_id, request)

    def left(self, name: str) -> None:
        """It has its instance."""
        self._there.pop(name, None)
        self._finish(name)

    def gone(self, name: str) -> None:
        """It was deleted: by somebody, or because another resource tells of the sandbox's instance."""
        self._ended.discard(name)
        sandbox_id = self._there.pop(name, None)
        if sandbox_id is None:
            return
        self._finish(name)
        if self._record_of(sandbox_id) is None:
            at = clock.text(self._client.now())
            self._over(sandbox_id, Ended(SandboxVerdict.DELETED, at, message="its Sandbox was deleted"), None)

    # What shall be there.

    async def make(self, promise: Promise, *, timeout: float) -> None:
        """Until every gateway can know it, or `timeout` seconds later; it is tried further then."""
        name = safe_name(promise.sandbox_id)
        work = self._works.get(name)
        if work is None:
            work = self._begin(name, _Work(promise.sandbox_id, promise))
        try:
            async with asyncio.timeout(timeout):
                await work.tried.wait()
        except TimeoutError:
            _log.warning(
                "a pending create is not known to other gateways yet", extra={"sandbox": promise.sandbox_id}
            )

    def claimed(self, sandbox_id: SandboxId) -> None:
        """It has its instance: `settled` follows once a record tells so."""
        work = self._works.get(safe_name(sandbox_id))
        if work is not None:
            work.paused = True
            work.news.set()

    def settled(self, sandbox_id: SandboxId, *, elsewhere: bool) -> None:
        """The instance's record is written. `elsewhere`: in another resource, so that this one is too many."""
        name = safe_name(sandbox_id)
        work = self._works.get(name)
        if not elsewhere:
            self.left(name)
        elif work is not None or name in self._there:
            work = work or self._begin(name, _Work(sandbox_id, None, there=True))
            work.dropped = True
            work.news.set()

    def end(self, sandbox_id: SandboxId, ended: Ended) -> None:
        """Whoever made the promise; of two ends the first counts, and that of a sandbox never promised is nothing."""
        record = self._record_of(sandbox_id)
        name = record or safe_name(sandbox_id)
        work = self._works.get(name)
        # It may have an instance by now that was not heard of here: then the record of that one is ended.
        if work is None and (record is not None or name in self._there):
            work = self._begin(name, _Work(sandbox_id, None, there=True))
        if work is not None and work.ended is None:
            work.ended = ended
            work.news.set()

    def writing(self, sandbox_id: SandboxId) -> asyncio.Task[None] | None:
        """What writes its end or its removal."""
        work = self._works.get(safe_name(sandbox_id))
        return work.task if work is not None and work.ending else None

    async def close(self, *, timeout: float) -> None:
        """Ends are written; promises lapse, unless this gateway comes back."""
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
            self._refused("promise")
            _log.error(
                "the API server refused the promise of Sandbox %s, which a crash loses: %s", name, error
            )
        finally:
            work.tried.set()
            if self._works.get(name) is work:
                del self._works[name]

    async def _step(self, name: str, work: _Work) -> float | None:
        """One request, two at most; how many seconds later the next is due, None where news alone can tell."""
        if work.done or (work.paused and not work.ending):
            return None
        path = paths.sandboxes(self._namespace, name)
        if work.dropped:
            # Also when no create of ours was answered: it may have been taken all the same.
            await unless_missing(self._client, "DELETE", path)
            self._there.pop(name, None)
            work.done = True
        elif not work.there and work.promise is not None:
            await self._create(name, work, promise=work.promise)
        elif work.ended is not None:
            await unless_ended(self._client, path, ends.status(work.ended))
            self._there.pop(name, None)
            work.done = True
        else:
            await unless_missing(self._client, "PATCH", path, body={"spec": {"waitingUntil": self._until()}})
        return 0.0 if work.ended is not None else self._lasts / 2

    async def _create(self, name: str, work: _Work, *, promise: Promise) -> None:
        body = sandbox_body(
            name,
            {
                "template": to_kube(promise.template),
                "sandboxId": promise.sandbox_id,
                "tenant": promise.tenant,
                "labels": list(promise.labels),
                "state": SandboxState.PENDING,
                "waitingUntil": self._until(),
            },
            request=promise.request,
        )
        try:
            await self._client.request("POST", paths.sandboxes(self._namespace), body=body)
        except KubeError as error:
            if error.status != 409:
                raise
            # Ours of before a lost answer or a restart; or its record, should it have its instance by now.
            path = paths.sandboxes(self._namespace, name)
            there = msgspec.json.decode(await self._client.request("GET", path), type=Sandbox)
            work.there = True
            if there.spec.waits and ends.of(there) is None:
                await unless_missing(
                    self._client, "PATCH", path, body={"spec": {"waitingUntil": self._until()}}
                )
            if there.spec.waits:
                self.changed(there)
        else:
            work.there = True
            self._there.setdefault(name, promise.sandbox_id)
        work.tried.set()

    def _until(self) -> str:
        return clock.text(self._client.now() + self._lasts)
