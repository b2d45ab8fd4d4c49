"""Writes the missing parts of a record to its Sandbox resource, one request at a time."""

from __future__ import annotations

from typing import Any

from sandlot_kube import ends, paths, reuse
from sandlot_kube.answers import read
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.ends import Ended
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod, Sandbox

from ...core.owners import Claim
from .known import Known, KnownSandboxes
from .pending_creates import PendingCreates
from .record import Record
from .translate import asked, safe_name, sandbox_body, to_kube
from .writes import uid_in, unless_ended, unless_missing


class RecordWriter:
    def __init__(
        self, client: KubeClient, *, namespace: str, known: KnownSandboxes, pending_creates: PendingCreates
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._known = known
        self._pending_creates = pending_creates

    async def step(self, record: Record) -> None:
        """Send one request and note its result. Raises KubeError."""
        known = self._known.of_pod(record.instance_id, record.generation)
        if record.cold is None:
            record.cold = (known or await self._get(record.instance_id)) is not None
            if not record.cold and record.claim is not None and await self._is_reused(record):
                record.generation = record.claim.generation
        name = known.name if known is not None else record.name
        path = paths.sandboxes(self._namespace, name)
        if record.drop:
            await unless_missing(self._client, "DELETE", path)
            record.drop = False
            return
        claim, ended = record.claim, record.ended  # while it is written, more may be asked for
        with self._known.writing(name) as write:
            try:
                uid = await self._send(record, known, path)
            except _NotWritten:
                return
        write.uid = uid or ""
        is_gone = write.is_outdated() if uid is not None else name not in self._known
        if not is_gone:
            # The watch may be late, and the next reader must see what was written. It may also have shown more.
            there = ended if record.end_there else None
            shown = self._known.get(name, uid=write.uid)
            self._known.keep(_written(name, record, shown, claim=claim, ended=there, uid=write.uid))
        if claim is not None and record.claim_there:
            self._pending_creates.settled(claim.sandbox_id, elsewhere=name != safe_name(claim.sandbox_id))

    async def _send(self, record: Record, known: Known | None, path: str) -> str | None:
        """Write the next part; return the resource's uid, "" if unknown, None if it is missing."""
        claim, ended = record.claim, record.ended
        if not record.created and not record.cold:
            if claim is None or record.name not in self._pending_creates:
                uid = await self._create(record)
            else:
                uid = await self._fulfil(path, record)
            record.created = record.claim_there = True
            return uid
        if claim is not None and not record.claim_there:
            body: dict[str, Any] = {"spec": {**record.owner, "madeFor": None}}
            if claim.request:
                body["metadata"] = {"annotations": asked(claim.request)}
            uid = await unless_missing(self._client, "PATCH", path, body=body)
            record.claim_there = True
            return uid
        if ended is None:
            return ""
        status = ends.status(ended)
        if known is not None and known.owner is not None and known.made_for == known.owner:
            status["sandboxId"] = known.owner
        uid = await unless_ended(self._client, path, status)
        record.end_there = True
        return uid

    async def _create(self, record: Record) -> str:
        """Create the Sandbox; return its uid. Raises _NotWritten."""
        spec = {"template": to_kube(record.template), **record.slot, **record.owner}
        body = sandbox_body(record.name, spec, request=record.claim.request if record.claim else None)
        try:
            return uid_in(await self._client.request("POST", paths.sandboxes(self._namespace), body=body))
        except KubeError as error:
            if error.status != 409:
                raise
            there = await self._get(record.name)
            if there is not None and there.spec.waits:
                return await self._fulfil(paths.sandboxes(self._namespace, record.name), record)
            if there is not None and _is_of_earlier_generation(there, record):
                return await self._fulfil(paths.sandboxes(self._namespace, record.name), record)
            if there is None or _slot(there) != (record.instance_id, record.generation):
                # The claim was given up here and made elsewhere: that Sandbox is about another pod.
                record.claim = None
                raise _NotWritten from error
            return there.metadata.uid

    async def _fulfil(self, path: str, record: Record) -> str:
        """Turn a pending create's or an earlier claim's Sandbox into the claim record; return its uid.

        Raises _NotWritten.
        """
        body: dict[str, Any] = {"spec": {**record.slot, "waitingUntil": None, **record.owner}}
        if record.claim is not None and record.claim.request:
            body["metadata"] = {"annotations": asked(record.claim.request)}
        try:
            return uid_in(await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH))
        except KubeError as error:
            if error.status not in (404, 422):
                raise
            # Deleted, or about another pod by now: a create will tell.
            self._pending_creates.left(record.name)
            raise _NotWritten from error

    async def _is_reused(self, record: Record) -> bool:
        """Return whether the pod, which the watch has not shown, runs one sandbox after the other."""
        try:
            body = await self._client.request("GET", paths.pods(self._namespace, record.instance_id))
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        return reuse.is_reused(read(body, Pod))

    async def _get(self, name: str) -> Sandbox | None:
        try:
            body = await self._client.request("GET", paths.sandboxes(self._namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return read(body, Sandbox)


class _NotWritten(Exception):
    """The record is not written yet: the next step goes another way."""


def _written(
    name: str,
    record: Record,
    shown: Known | None,
    *,
    claim: Claim | None,
    ended: Ended | None,
    uid: str,
) -> Known:
    """Return what is known, with what has been written; `shown`: by the watch, also after the write."""
    if shown is None:
        shown = Known(name, record.instance_id)
    elif shown.ended is not None and claim is None:
        return shown  # the first end stays, and nothing else was written
    owner = claim.sandbox_id if claim is not None else shown.owner
    return Known(
        name,
        record.instance_id,
        owner=owner,
        ended=shown.ended or ended,
        made_for=shown.made_for,
        told=owner is not None,
        generation=record.generation,
        uid=uid or shown.uid,
    )


def _slot(sandbox: Sandbox) -> tuple[str | None, int | None]:
    return sandbox.spec.pod_name, sandbox.spec.generation


def _is_of_earlier_generation(sandbox: Sandbox, record: Record) -> bool:
    """Return whether it records an earlier claim of the same pod by the same sandbox."""
    pod, generation = _slot(sandbox)
    if pod != record.instance_id or generation is None or record.generation is None:
        return False
    return generation < record.generation and ends.of(sandbox) is None
