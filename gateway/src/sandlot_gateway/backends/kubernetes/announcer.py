"""Tells other gateways what they see in no record, or later: ends of sandboxes, and pods that were reset."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from sandlot_contract.ids import InstanceId, SandboxId

from sandlot_gateway.core.bad_json import NOT_JSON

from ...core.owners import RecordedEnd
from ...tasks import Tasks
from .generation_ends import GenerationEnds
from .peers import Peers
from .view import View

_log = logging.getLogger(__name__)
_GATHER = 0.02  # seconds in which news go into one request
_FRAME = 64  # bytes of a request around its news


class _End(msgspec.Struct):
    instance_id: InstanceId
    generation: int
    end: RecordedEnd


class _News(msgspec.Struct):
    ends: list[_End] = []
    states: list[dict[str, Any]] = []


@dataclass(eq=False)
class _Batch:
    """News of one request. `over`: set once all gateways that answer have it."""

    ends: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])
    states: list[msgspec.Raw] = field(default_factory=list[msgspec.Raw])
    size: int = 0
    sandboxes: list[SandboxId] = field(default_factory=list[SandboxId])
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Announcer:
    """Methods but `told` and `close` return at once. A gateway that cannot be reached learns the same from the record or
    from the next report of the sidecar, or asks when the pod is over.
    """

    def __init__(self, *, peers: Peers | None, max_body: int) -> None:
        """`max_body`: bytes of a request that the other gateways accept."""
        self._peers = peers
        self._room = max_body - _FRAME
        self._batch = _Batch()
        self._untold: dict[SandboxId, _Batch] = {}  # those whose end has not reached the others yet
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    def ended(self, instance_id: InstanceId, generation: int, end: RecordedEnd) -> None:
        """Tell the end of a sandbox."""
        if self._peers is None:
            return
        text = msgspec.json.encode(_End(instance_id, generation, end))
        if len(text) > self._room:
            # Gateways that know the sandbox do not need its request.
            text = msgspec.json.encode(_End(instance_id, generation, replace(end, request=None)))
        batch = self._room_for(text)
        batch.ends.append(msgspec.Raw(text))
        batch.sandboxes.append(end.sandbox_id)
        self._untold[end.sandbox_id] = batch

    def reset(self, state: dict[str, Any]) -> None:
        """Tell the state of a pod that was reset."""
        if self._peers is not None:
            told = {name: value for name, value in state.items() if name != "proof"}
            text = msgspec.json.encode(told)
            self._room_for(text).states.append(msgspec.Raw(text))

    async def told(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Wait until the others that answer know the ends of these sandboxes, `timeout` seconds at most."""
        batches = {batch for one in sandbox_ids if (batch := self._untold.get(one)) is not None}
        if self._batch in batches:
            self._send()
        try:
            async with asyncio.timeout(timeout):
                for batch in batches:
                    await batch.over.wait()
        except TimeoutError:
            _log.info("the other gateways take long to get the news")

    async def close(self, *, timeout: float) -> None:
        """Send what is left, `timeout` seconds at most."""
        self._send()
        if await self._tasks.close(timeout=timeout):
            _log.warning("gave up telling other gateways that do not answer the last ends")

    def _room_for(self, text: bytes) -> _Batch:
        """Return the batch that takes this news, which counts there from now on."""
        if self._batch.size + len(text) > self._room:
            self._send()
        self._batch.size += len(text) + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._send)
        return self._batch

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._peers is None or not self._batch.size:
            return
        batch, self._batch = self._batch, _Batch()
        self._tasks.spawn(self._tell(self._peers, batch))

    async def _tell(self, peers: Peers, batch: _Batch) -> None:
        news = msgspec.json.encode({"ends": batch.ends, "states": batch.states})
        try:
            await peers.tell(news, told=partial(self._over, batch))
        finally:
            self._over(batch)  # cancelled or failed: who waits for it must go on

    def _over(self, batch: _Batch) -> None:
        for sandbox_id in batch.sandboxes:
            if self._untold.get(sandbox_id) is batch:
                del self._untold[sandbox_id]
        batch.over.set()


def apply(body: bytes, *, view: View, generation_ends: GenerationEnds) -> bool:
    """Apply another gateway's news; return False if they are unreadable."""
    try:
        news = msgspec.json.decode(body, type=_News)
    except NOT_JSON as error:
        _log.error("the news of another gateway cannot be read: %s", error)
        return False
    for one in news.ends:
        generation_ends.ended(one.instance_id, one.generation, one.end)
    for state in news.states:
        seen = view.instances.get(InstanceId(str(state.get("instance_id"))))
        if seen is not None and seen.reused:
            view.states.heard(seen.instance, state)
    return True
