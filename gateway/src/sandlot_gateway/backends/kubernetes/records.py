"""The claim records: writes Sandbox resources in the background and follows what others wrote."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.template import Template
from sandlot_contract.verdicts import SandboxVerdict
from sandlot_kube import clock
from sandlot_kube.client import KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox

from ...core.owners import Claim
from ...core.slot import Loss
from .debouncer import Debouncer
from .known import Known, KnownSandboxes, Write
from .notes import KubernetesNotes
from .pending_creates import PendingCreates
from .record import Record
from .record_writer import RecordWriter
from .recorded import Recorded
from .sandbox_change import SandboxChange
from .translate import asked_for
from .unwritten import Unwritten
from .writes import Writes

_log = logging.getLogger(__name__)
_OTHERS_RECORD = 15.0  # seconds; a loaded API server takes that long for a write


class Records:
    """All methods but `flush` and `close` return at once. Calls `seen` for each Sandbox that appears, gets its owner or
    ends (deleting one is an end, too), `refused` for each write that the API server rejects for good: `claim`, `end`,
    `removal` or `pending_create`, and `needed` when a sandbox needs a record whose time has not come.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        seen: Callable[[SandboxChange], None],
        notes: KubernetesNotes | None = None,
        pending_create_lasts: float = 120.0,
        pending_create_found: Callable[[SandboxId, dict[str, Any]], None] = lambda sandbox_id, request: None,
        pending_create_over: Callable[
            [SandboxId, Ended, dict[str, Any] | None], None
        ] = lambda sandbox_id, ended, request: None,
        refused: Callable[[str], None] = lambda what: None,
        needed: Callable[[SandboxId], None] = lambda sandbox_id: None,
        shortest_wait: float = 0.2,
        longest_wait: float = 10.0,
    ) -> None:
        self._client = client
        self._seen = seen
        self._notes = notes
        self._refused = refused
        self._needed = needed
        self._writes = Writes(shortest_wait=shortest_wait, longest_wait=longest_wait)
        self._debouncer = Debouncer()
        self._known = KnownSandboxes()
        self.pending_creates = PendingCreates(
            client,
            namespace=namespace,
            lasts=pending_create_lasts,
            found=pending_create_found,
            over=pending_create_over,
            refused=refused,
            record_of=self._known.name_of,
            writes=self._writes,
        )
        self._writer = RecordWriter(
            client, namespace=namespace, known=self._known, pending_creates=self.pending_creates
        )
        self._unwritten = Unwritten(self._known)
        self.recorded = Recorded(self._known, self._unwritten)

    # Existing resources.

    async def resource_of(self, sandbox_id: SandboxId) -> str | None:
        """Return the name of its Sandbox resource, waiting for one that is being written."""
        if self._known.name_of(sandbox_id) is None:
            self._needed(sandbox_id)
            await self.flush(timeout=5.0)
        if self._known.name_of(sandbox_id) is None:
            # This gateway may know another's sandbox before that one has written its record.
            await self._known.wait_for(sandbox_id, timeout=_OTHERS_RECORD)
        return self._known.name_of(sandbox_id)

    @property
    def unwritten(self) -> int:
        return len(self._unwritten)

    def listing(self) -> None:
        """Note what a list that begins should show: a resource that is written meanwhile may be newer than it."""
        self._known.listing()
        self.pending_creates.listing()

    def replaced(self, sandboxes: list[Sandbox]) -> None:
        names = {sandbox.metadata.name for sandbox in sandboxes}
        for known in self._known.missing(names):
            self._forgotten(known)
        for sandbox in sandboxes:
            self.changed(sandbox)
        # Last: a pending create that was replaced by its instance's record has not ended.
        self.pending_creates.replaced(names)

    def changed(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        if sandbox.spec.waits:
            self.pending_creates.changed(sandbox)
            return
        self.pending_creates.left(name)
        before = self._known.get(name)
        known = Known.shown(sandbox, before=before)
        self._known.keep(known)
        news = (known.claimed, known.ended is None, known.generation)
        if before is None or (before.claimed, before.ended is None, before.generation) != news:
            request = None if known.ended is None else asked_for(sandbox)
            change = SandboxChange(known.pod, known.owner, known.ended, request, generation=known.generation)
            self._seen(change)
        if self._notes is not None:
            self._notes.changed(sandbox)

    def deleted(self, sandbox: Sandbox) -> None:
        name = sandbox.metadata.name
        self._forgotten(self._known.remove(name, uid=sandbox.metadata.uid))
        self.pending_creates.gone(name, uid=sandbox.metadata.uid)

    def _forgotten(self, known: Known | None) -> None:
        if known is not None and known.ended is None:
            ended = self.ending(Loss(SandboxVerdict.DELETED, "its Sandbox was deleted"))
            deleted = known.generation is not None or self._known.of_pod(known.pod) is None
            change = SandboxChange(
                known.pod, known.owner, ended, deleted=deleted, generation=known.generation
            )
            self._seen(change)
        if known is not None and self._notes is not None:
            self._notes.deleted(known.owner or known.made_for)

    # Writes.

    @contextmanager
    def making(self, instance_id: InstanceId, *, wanted: SandboxId | None) -> Iterator[Write]:
        """Note a cold start's Sandbox that is made meanwhile, which the watch may show later or have shown as deleted.

        `wanted`: the sandbox it is made for.
        """
        with self._known.writing(instance_id) as write:
            yield write
        if instance_id not in self._known and not write.is_outdated():
            self._known.keep(Known(instance_id, instance_id, made_for=wanted, uid=write.uid))

    def confirmed(self, instance_id: InstanceId, sandbox_id: SandboxId) -> bool:
        """Return whether the Sandbox records this claim already, because it was made for this sandbox.

        False while the sandbox's pending create has a resource, which only the claim record replaces.
        """
        known = self._known.of_pod(instance_id)
        if known is None or known.made_for != sandbox_id or known.owner not in (None, sandbox_id):
            return False
        if self.pending_creates.has(sandbox_id):
            return False
        self._known.keep(replace(known, owner=sandbox_id))
        return True

    def name_owner(self, instance_id: InstanceId, claim: Claim, *, template: Template) -> None:
        """Add the owner to an end that was written without it, for gateways that start later."""
        known = self._known.of_pod(instance_id)
        if known is None or known.ended is None or known.told or known.owner != claim.sandbox_id:
            return
        record = self._unwritten.begin(instance_id, template, cold=True)
        if record.claim is None:
            record.claim, record.claim_there = claim, False
            self._work(record)

    def claim(
        self,
        instance_id: InstanceId,
        claim: Claim,
        *,
        template: Template,
        cold: bool | None,
        node: str | None = None,
        generation: int | None = None,
    ) -> None:
        """Write the claim record. `node`: where its pod runs, if known. `generation`: of a reused pod."""
        known = self._known.of_pod(instance_id, generation)
        if (known is not None and known.claimed) or self.confirmed(instance_id, claim.sandbox_id):
            return
        record = self._unwritten.begin(instance_id, template, cold=cold, generation=generation)
        if record.claim is None:
            record.claim, record.node, record.claimed_for = claim, node, claim.sandbox_id
            self.pending_creates.claimed(claim.sandbox_id)
            self._debouncer.claim()
            self._work(record)

    def ending(self, end: Loss) -> Ended:
        """Build the end with the current time."""
        at = clock.text(self._client.now())
        return Ended(end.verdict, at, message=end.message, exit_code=end.exit_code)

    def end(
        self,
        instance_id: InstanceId,
        ended: Ended,
        *,
        template: Template,
        cold: bool | None,
        generation: int | None = None,
    ) -> None:
        """Write the end, creating a Sandbox if the pod has none, so that the controller deletes the pod.

        With the `generation` of a reused pod: only into its Sandbox.
        """
        known = self._known.of_pod(instance_id, generation)
        if known is not None and known.ended is not None:
            return
        record = self._unwritten.begin(instance_id, template, cold=cold, generation=generation)
        if record.ended is None:
            record.ended = ended
            self._work(record)

    def drop(self, instance_id: InstanceId, *, template: Template) -> None:
        """Delete the Sandbox that an unclaimed instance was made for, and with it the pod."""
        record = self._unwritten.begin(instance_id, template, cold=True)
        record.drop = True
        self._work(record)

    async def ends_written(self, sandbox_ids: set[SandboxId], *, timeout: float) -> None:
        """Wait until the ends of these sandboxes are written, `timeout` seconds at most."""
        records = [one for one in self._unwritten if self._unwritten.owner_of(one) in sandbox_ids]
        await self._written(records, timeout=timeout, also=map(self.pending_creates.writing, sandbox_ids))

    async def flush(self, *, timeout: float) -> None:
        """Wait until all records are written, `timeout` seconds at most."""
        await self._written(self._unwritten, timeout=timeout)

    async def close(self, *, timeout: float) -> None:
        """Write for `timeout` seconds at most; another gateway records the rest after the next heartbeat."""
        deadline = asyncio.get_running_loop().time() + timeout
        await self.flush(timeout=timeout)
        tasks = [record.task for record in self._unwritten if record.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            _log.warning("gave up %d records that the API server did not take in time", len(tasks))
        await asyncio.gather(*tasks, return_exceptions=True)
        # Last: writing a record may begin to delete its pending create's resource.
        await self.pending_creates.close(timeout=max(deadline - asyncio.get_running_loop().time(), 0.0))

    # Inside.

    async def _written(
        self,
        records: Iterable[Record],
        *,
        timeout: float,
        also: Iterable[asyncio.Task[None] | None] = (),
    ) -> None:
        self._debouncer.end()
        tasks = [task for task in (*(record.task for record in records), *also) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    def _work(self, record: Record) -> None:
        if record.task is None:
            record.task = asyncio.get_running_loop().create_task(self._write(record))

    async def _write(self, record: Record) -> None:
        try:
            # 20 records at once would take the cores that the first commands of answered creates need.
            await self._debouncer.wait()
            while not record.done:
                try:
                    await self._writes.taken(record.turn, record.name, partial(self._writer.step, record))
                except KubeError as error:
                    name = record.name
                    what, kept = record.reduce()
                    self._refused(what)
                    _log.error(
                        "the API server refused the %s of Sandbox %s, which is %s: %s",
                        what,
                        name,
                        kept,
                        error,
                    )
        finally:
            self._unwritten.remove(record)
            if record.claimed_for is not None and not record.claim_there:
                self.pending_creates.settled(record.claimed_for, elsewhere=False)
