"""The Sandbox resources: what is written to them in the background until it is there, and what others wrote."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from sandlot_kube import backoff, clock, ends, paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox

from ...core.instances import Template
from ...core.owners import Claim
from .lull import Lull
from .notes import KubernetesNotes
from .promises import Promises
from .translate import asked, asked_for, safe_name, sandbox_body, to_kube

_log = logging.getLogger(__name__)
_OTHERS_RECORD = 15.0  # seconds; an API server that is under load takes as long for a write
_FOR_EVER = (400, 413, 422)  # statuses of a write that the API server will never take


@dataclass(frozen=True, slots=True)
class Known:
    """What the API server has of one Sandbox."""

    name: str
    pod: str
    owner: str | None  # the sandbox's id
    ended: Ended | None
    made_for: str | None = None  # of one that was started for a sandbox: its id
    told: bool = False  # the resource itself names the owner
    request: dict[str, Any] | None = None  # what was asked for, of one that has ended

    @property
    def claimed(self) -> bool:
        return self.owner is not None


@dataclass(slots=True, eq=False)
class _Record:
    """What is wanted of one instance's Sandbox, and what of it is there."""

    instance_id: str
    template: Template
    cold: bool | None  # the Sandbox has the instance's name and was made before the pod; None: not known yet
    claim: Claim | None = None
    node: str | None = None
    ended: Ended | None = None
    promised: str | None = (
        None  # the id of the sandbox that was claimed for, also when it turns out to be elsewhere
    )
    drop: bool = False
    created: bool = False
    claim_there: bool = False
    end_there: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.instance_id if self.cold or self.claim is None else safe_name(self.claim.sandbox_id)

    @property
    def done(self) -> bool:
        claimed = self.claim is None or self.claim_there
        return claimed and (self.ended is None or self.end_there) and not self.drop


class Records:
    """All but `flush`, `close` return at once. `seen` hears of a Sandbox that came, got its owner or its end.

    Deleting one is an end, too. `refused` hears of each write that the API server will never take: of a `claim`, an
    `end`, a `removal` or a `promise`.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        seen: Callable[[Known], None],
        notes: KubernetesNotes | None = None,
        promise_lasts: float = 120.0,
        promise_found: Callable[[str, dict[str, Any]], None] = lambda sandbox_id, request: None,
        promise_over: Callable[[str, Ended], None] = lambda sandbox_id, ended: None,
        refused: Callable[[str], None] = lambda what: None,
        at_once: int = 32,
        shortest_wait: float = 0.2,
        longest_wait: float = 10.0,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._seen = seen
        self._notes = notes
        self._refused = refused
        self._slots = asyncio.Semaphore(at_once)
        self._lull = Lull()
        self._shortest_wait = shortest_wait
        self._longest_wait = longest_wait
        self._known: dict[str, Known] = {}  # by name
        self._by_pod: dict[str, str] = {}
        self._by_owner: dict[str, str] = {}
        self._wanted: dict[str, asyncio.Event] = {}  # by owner: somebody waits for its record
        self.promises = Promises(
            client,
            namespace=namespace,
            lasts=promise_lasts,
            found=promise_found,
            over=promise_over,
            refused=refused,
            record_of=self._by_owner.get,
            shortest_wait=shortest_wait,
            longest_wait=longest_wait,
        )
        self._records: dict[str, _Record] = {}  # by instance; only what is not there yet

    # What is there.

    def of_pod(self, instance_id: str) -> Known | None:
        return self._known.get(self._by_pod.get(instance_id, ""))

    def has_end(self, instance_id: str) -> bool:
        """It is there, or on its way."""
        known, record = self.of_pod(instance_id), self._records.get(instance_id)
        return (known is not None and known.ended is not None) or (
            record is not None and record.ended is not None
        )

    async def resource_of(self, sandbox_id: str) -> str | None:
        """The name of the Sandbox that tells of it, waiting a moment for one that is being written."""
        if sandbox_id not in self._by_owner:
            await self.flush(timeout=5.0)
        if sandbox_id not in self._by_owner:
            # What another gateway has made is known here before that one has written its record.
            event = self._wanted.setdefault(sandbox_id, asyncio.Event())
            try:
                async with asyncio.timeout(_OTHERS_RECORD):
                    await event.wait()
            except TimeoutError:
                self._wanted.pop(sandbox_id, None)
        return self._by_owner.get(sandbox_id)

    @property
    def unwritten(self) -> int:
        return len(self._records)

    def replaced(self, sandboxes: list[Sandbox]) -> None:
        names = {sandbox.metadata.name for sandbox in sandboxes}
        for name in [name for name in self._known if name not in names]:
            self._forget(name)
        for sandbox in sandboxes:
            self.changed(sandbox)
        # After the others: one that is gone because another tells of its instance is not over.
        for name in [name for name in self.promises.names() if name not in names]:
            self.promises.gone(name)

    def changed(self, sandbox: Sandbox) -> None:
        spec = sandbox.spec
        name = sandbox.metadata.name
        if spec.waits:
            self.promises.changed(sandbox)
            return
        self.promises.left(name)
        before = self._known.get(name)
        owner = spec.sandbox_id or sandbox.status.sandbox_id
        told = owner is not None
        if owner is None and before is not None and before.owner == spec.made_for:
            owner = before.owner  # by its sidecar's word
        known = Known(name, spec.pod_name or name, owner, ends.of(sandbox), made_for=spec.made_for, told=told)
        self._keep(known)
        if before is None or (before.claimed, before.ended is None) != (known.claimed, known.ended is None):
            self._seen(known if known.ended is None else replace(known, request=asked_for(sandbox)))
        if self._notes is not None:
            self._notes.changed(sandbox)

    def deleted(self, sandbox: Sandbox) -> None:
        self._forget(sandbox.metadata.name)
        self.promises.gone(sandbox.metadata.name)
        if self._notes is not None:
            self._notes.deleted(sandbox)

    def _keep(self, known: Known) -> None:
        self._known[known.name] = known
        self._by_pod[known.pod] = known.name
        if known.owner is not None:
            self._by_owner[known.owner] = known.name
            if (event := self._wanted.pop(known.owner, None)) is not None:
                event.set()

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is None:
            return
        if self._by_pod.get(known.pod) == name:
            del self._by_pod[known.pod]
        if known.owner is not None and self._by_owner.get(known.owner) == name:
            del self._by_owner[known.owner]
        if known.ended is None:
            ended = self.ending("deleted", message="its Sandbox was deleted", exit_code=None)
            self._seen(replace(known, ended=ended))

    # What shall be there.

    def made(self, instance_id: str, *, wanted: str | None) -> None:
        """A cold one's Sandbox was created, for the sandbox of this id: the watch may be late."""
        if instance_id not in self._known:
            self._keep(Known(instance_id, instance_id, owner=None, ended=None, made_for=wanted))

    def confirmed(self, instance_id: str, sandbox_id: str) -> bool:
        """Whether the Sandbox tells of this claim as it is: it was made for the one that has claimed it.

        Not while the same sandbox has a promise, which only the record of its instance ends.
        """
        known = self.of_pod(instance_id)
        if known is None or known.made_for != sandbox_id or known.owner not in (None, sandbox_id):
            return False
        if self.promises.has(sandbox_id):
            return False
        self._keep(replace(known, owner=sandbox_id))
        return True

    def name_owner(self, instance_id: str, claim: Claim, *, template: Template) -> None:
        """It has ended, and whoever wrote the end did not know whose it was: gateways to come shall."""
        record = self._record(instance_id, template, cold=True)
        if record.claim is None:
            record.claim, record.claim_there = claim, False
            self._work(record)

    def claim(
        self,
        instance_id: str,
        claim: Claim,
        *,
        template: Template,
        cold: bool | None,
        node: str | None = None,
    ) -> None:
        """`node`: where its pod is, if that is known."""
        known = self.of_pod(instance_id)
        if (known is not None and known.claimed) or self.confirmed(instance_id, claim.sandbox_id):
            return
        record = self._record(instance_id, template, cold=cold)
        if record.claim is None:
            record.claim, record.node, record.promised = claim, node, claim.sandbox_id
            self.promises.claimed(claim.sandbox_id)
            self._lull.claim()
            self._work(record)

    def ending(self, verdict: str, *, message: str | None, exit_code: int | None) -> Ended:
        """An end at this time."""
        return Ended(verdict, clock.text(self._client.now()), message=message, exit_code=exit_code)

    def end(self, instance_id: str, ended: Ended, *, template: Template, cold: bool | None) -> None:
        """A pod without a Sandbox gets one, so that the controller takes the pod away."""
        known = self.of_pod(instance_id)
        if known is not None and known.ended is not None:
            return
        record = self._record(instance_id, template, cold=cold)
        if record.ended is None:
            record.ended = ended
            self._work(record)

    def drop(self, instance_id: str, *, template: Template) -> None:
        """Delete the Sandbox that an unclaimed instance was made for, and with it the pod."""
        record = self._record(instance_id, template, cold=True)
        record.drop = True
        self._work(record)

    async def flush(self, *, timeout: float) -> None:
        """Until what was asked for is written."""
        self._lull.end()
        tasks = [record.task for record in self._records.values() if record.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    async def close(self, *, timeout: float) -> None:
        """What is not written by then is written by whoever hears the sidecar's next heartbeat."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self.flush(timeout=timeout)
        tasks = [record.task for record in self._records.values() if record.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Last: a record just written may begin to delete its promise, and nobody would wait for that.
        await self.promises.close(timeout=max(deadline - loop.time(), 0.0))

    # Inside.

    def _record(self, instance_id: str, template: Template, *, cold: bool | None) -> _Record:
        record = self._records.get(instance_id)
        if record is None:
            known = self.of_pod(instance_id)
            record = _Record(instance_id, template, cold)
            if known is not None:
                record.created = True
                record.claim_there = known.claimed
                record.end_there = known.ended is not None
            self._records[instance_id] = record
        return record

    def _work(self, record: _Record) -> None:
        if record.task is None:
            record.task = asyncio.get_running_loop().create_task(self._write(record))

    async def _write(self, record: _Record) -> None:
        failures = 0
        try:
            # A create is answered before its record is written: the records of 20 at once, and what watches them, would
            # take the cores that their first commands need.
            await self._lull.wait()
            while not record.done:
                try:
                    async with self._slots:
                        await self._step(record)
                    failures = 0
                except KubeError as error:
                    if error.status in _FOR_EVER:
                        self._reduce(record, error)
                        continue
                    failures += 1
                    level = logging.WARNING if failures == 1 else logging.DEBUG
                    _log.log(level, "Sandbox %s is written later: %s", record.name, error)
                    await asyncio.sleep(
                        backoff.pause(failures, shortest=self._shortest_wait, longest=self._longest_wait)
                    )
        finally:
            self._records.pop(record.instance_id, None)
            if record.promised is not None and not record.claim_there:
                self.promises.settled(record.promised, elsewhere=False)

    def _reduce(self, record: _Record, error: KubeError) -> None:
        """Ask for less after a refusal: without what a user has sent, then without the part that was refused."""
        claim, ended = record.claim, record.ended
        name, kept = record.name, "given up"
        if record.drop:
            what, record.drop = "removal", False
        elif claim is not None and not record.claim_there:
            what = "claim"
            if claim.labels or claim.request:
                record.claim = replace(claim, labels=(), request={})
                kept = "written without its labels and request"
            else:
                record.claim = None
        else:
            what = "end"
            if ended is not None and ended.message:
                record.ended = msgspec.structs.replace(ended, message=None)
                kept = "written without its message"
            else:
                record.ended = None
        self._refused(what)
        _log.error("the API server refused the %s of Sandbox %s, which is %s: %s", what, name, kept, error)

    async def _step(self, record: _Record) -> None:
        """One request, and what is there after it."""
        known = self.of_pod(record.instance_id)
        if record.cold is None:
            record.cold = (known or await self._get(record.instance_id)) is not None
        path = paths.sandboxes(self._namespace, known.name if known is not None else record.name)
        claim, ended = record.claim, record.ended
        if record.drop:
            await self._unless_missing("DELETE", path)
            record.drop = False
            return
        if not record.created and not record.cold:
            if claim is None or record.name not in self.promises:
                made = await self._create(record)
            else:
                made = await self._fulfil(path, record)
            if not made:
                return
            record.created = record.claim_there = True
        elif claim is not None and not record.claim_there:
            body: dict[str, Any] = {"spec": {**_owner(record), "madeFor": None}}
            if claim.request:
                body["metadata"] = {"annotations": asked(claim.request)}
            await self._unless_missing("PATCH", path, body=body)
            record.claim_there = True
        elif ended is not None:
            status = ends.status(ended)
            if known is not None and known.owner is not None and known.made_for == known.owner:
                status["sandboxId"] = known.owner
            try:
                await self._unless_missing("PATCH", f"{path}/status", body={"status": status})
            except KubeError as error:
                if not ends.was_first(error):
                    raise
            record.end_there = True
        # The watch may be late or away, and the next who asks is not to be told that there is nothing.
        name = known.name if known is not None else record.name
        there = ended if record.end_there else None
        before = known.owner if known is not None else None
        owner = claim.sandbox_id if claim is not None else before
        made_for = known.made_for if known is not None else None
        self._keep(
            Known(
                name, record.instance_id, owner=owner, ended=there, made_for=made_for, told=owner is not None
            )
        )
        if claim is not None and record.claim_there:
            self.promises.settled(claim.sandbox_id, elsewhere=name != safe_name(claim.sandbox_id))

    async def _create(self, record: _Record) -> bool:
        """False: not yet."""
        spec = {"template": to_kube(record.template), "podName": record.instance_id, **_owner(record)}
        body = sandbox_body(record.name, spec, request=record.claim.request if record.claim else None)
        try:
            await self._client.request("POST", paths.sandboxes(self._namespace), body=body)
        except KubeError as error:
            if error.status != 409:
                raise
            there = await self._get(record.name)
            if there is not None and there.spec.waits:
                return await self._fulfil(paths.sandboxes(self._namespace, record.name), record)
            if there is None or there.spec.pod_name != record.instance_id:
                # A claim that was given up here and made elsewhere: that Sandbox is about another pod.
                record.claim = None
                return False
        return True

    async def _fulfil(self, path: str, record: _Record) -> bool:
        """What was promised has this instance now. False: not yet."""
        spec = {"podName": record.instance_id, "waitingUntil": None, **_owner(record)}
        try:
            await self._client.request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)
        except KubeError as error:
            if error.status not in (404, 422):
                raise
            self.promises.left(record.name)  # deleted, or of another pod by now: a create tells which
            return False
        return True

    async def _get(self, name: str) -> Sandbox | None:
        try:
            body = await self._client.request("GET", paths.sandboxes(self._namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return msgspec.json.decode(body, type=Sandbox)

    async def _unless_missing(self, method: str, path: str, *, body: object = None) -> None:
        """One that was deleted takes its pod along, which is more than an end could."""
        try:
            await self._client.request(method, path, body=body, content_type=MERGE_PATCH)
        except KubeError as error:
            if error.status != 404:
                raise


def _owner(record: _Record) -> dict[str, Any]:
    claim = record.claim
    if claim is None:
        return {}
    owner = {"sandboxId": claim.sandbox_id, "tenant": claim.tenant, "labels": list(claim.labels)}
    node = {} if record.node is None else {"nodeName": record.node}
    return {**owner, **node, "state": "Running"}
