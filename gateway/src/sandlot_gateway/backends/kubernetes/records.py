"""The Sandbox resources: what is written to them in the background until it is there, and what others wrote."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
from sandlot_kube import backoff, paths
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Ended, Sandbox

from ..base import Claim, Template
from .translate import sandbox_body, to_kube

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class Known:
    """What the API server has of one Sandbox."""

    name: str
    pod: str
    claimed: bool
    ended: Ended | None


@dataclass(slots=True, eq=False)
class _Record:
    """What is wanted of one instance's Sandbox, and what of it is there."""

    instance_id: str
    template: Template
    cold: bool | None  # the Sandbox has the instance's name and was made before the pod; None: not known yet
    claim: Claim | None = None
    ended: Ended | None = None
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

    Deleting one is an end, too.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        seen: Callable[[Known], None],
        at_once: int = 32,
        shortest_wait: float = 0.2,
        longest_wait: float = 10.0,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._seen = seen
        self._slots = asyncio.Semaphore(at_once)
        self._shortest_wait = shortest_wait
        self._longest_wait = longest_wait
        self._known: dict[str, Known] = {}  # by name
        self._by_pod: dict[str, str] = {}
        self._records: dict[str, _Record] = {}  # by instance; only what is not there yet

    # What is there.

    def of_pod(self, instance_id: str) -> Known | None:
        return self._known.get(self._by_pod.get(instance_id, ""))

    @property
    def unwritten(self) -> int:
        return len(self._records)

    def replaced(self, sandboxes: list[Sandbox]) -> None:
        names = {sandbox.metadata.name for sandbox in sandboxes}
        for name in [name for name in self._known if name not in names]:
            self._forget(name)
        for sandbox in sandboxes:
            self.changed(sandbox)

    def changed(self, sandbox: Sandbox) -> None:
        spec, status = sandbox.spec, sandbox.status
        ended = spec.ended
        if status.phase == "Ended" or status.verdict is not None:
            # The controller's word is the last one: it takes over what spec.ended says.
            verdict = status.verdict or (ended.verdict if ended else "sandbox_lost")
            ended = Ended(verdict=verdict, message=status.message, exit_code=status.exit_code)
        name = sandbox.metadata.name
        pod = spec.pod_name or name
        known = Known(name, pod, claimed=spec.sandbox_id is not None, ended=ended)
        before = self._known.get(name)
        self._known[name] = known
        self._by_pod[pod] = name
        if before is None or (before.claimed, before.ended is None) != (known.claimed, known.ended is None):
            self._seen(known)

    def deleted(self, sandbox: Sandbox) -> None:
        self._forget(sandbox.metadata.name)

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is None:
            return
        if self._by_pod.get(known.pod) == name:
            del self._by_pod[known.pod]
        if known.ended is None:
            self._seen(replace(known, ended=Ended(verdict="deleted", message="its Sandbox was deleted")))

    # What shall be there.

    def claim(self, instance_id: str, claim: Claim, *, template: Template, cold: bool | None) -> None:
        known = self.of_pod(instance_id)
        if known is not None and known.claimed:
            return
        record = self._record(instance_id, template, cold=cold)
        if record.claim is None:
            record.claim = claim
            self._work(record)

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
        tasks = [record.task for record in self._records.values() if record.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    async def close(self, *, timeout: float) -> None:
        """What is not written by then is written by whoever hears the sidecar's next heartbeat."""
        await self.flush(timeout=timeout)
        tasks = [record.task for record in self._records.values() if record.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            while not record.done:
                try:
                    async with self._slots:
                        await self._step(record)
                    failures = 0
                except KubeError as error:
                    if error.status in (400, 413, 422):
                        _log.error("Sandbox %s cannot be written: %s", record.name, error)
                        return
                    failures += 1
                    level = logging.WARNING if failures == 1 else logging.DEBUG
                    _log.log(level, "Sandbox %s is written later: %s", record.name, error)
                    await asyncio.sleep(
                        backoff.pause(failures, shortest=self._shortest_wait, longest=self._longest_wait)
                    )
        finally:
            self._records.pop(record.instance_id, None)

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
            spec = {"template": to_kube(record.template), "podName": record.instance_id, **_owner(claim)}
            if ended is not None:
                spec["ended"] = ended
            body = sandbox_body(record.name, spec)
            try:
                await self._client.request("POST", paths.sandboxes(self._namespace), body=body)
                record.end_there = ended is not None
            except KubeError as error:
                if error.status != 409:
                    raise
                there = await self._get(record.name)
                if there is None or there.spec.pod_name != record.instance_id:
                    # A claim that was given up here and made elsewhere: that Sandbox is about another pod.
                    record.claim = None
                    return
            record.created = record.claim_there = True
        else:
            spec: dict[str, Any] = {} if record.claim_there else _owner(claim)
            if ended is not None:
                spec["ended"] = ended
            await self._unless_missing("PATCH", path, body={"spec": spec})
            record.claim_there = True
            record.end_there = ended is not None
        # The watch may be late or away, and the next who asks is not to be told that there is nothing.
        name = known.name if known is not None else record.name
        there = ended if record.end_there else None
        self._known[name] = Known(name, record.instance_id, claimed=claim is not None, ended=there)
        self._by_pod[record.instance_id] = name

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


def _owner(claim: Claim | None) -> dict[str, Any]:
    if claim is None:
        return {}
    return {"sandboxId": claim.sandbox_id, "tenant": claim.tenant, "labels": list(claim.labels)}


def ending(verdict: str, *, message: str | None, exit_code: int | None) -> Ended:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = message[:4096] if message is not None else None
    return Ended(verdict=verdict, message=text, exit_code=exit_code, at=at)


def safe_name(sandbox_id: str) -> str:
    """The id itself where it can be a resource's name, else a name made from it."""
    if _NAME.match(sandbox_id):
        return sandbox_id
    return "sb-" + hashlib.sha256(sandbox_id.encode()).hexdigest()[:20]
