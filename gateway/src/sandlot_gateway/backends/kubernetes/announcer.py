"""Tells other gateways what no record says: ends of sandboxes in reused pods, and pods that were reset."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import msgspec
from sandlot_contract.ids import InstanceId

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


class Announcer:
    """Methods return at once. A gateway that cannot be reached learns the same from the next report of the sidecar, or
    asks when the pod is over.
    """

    def __init__(self, *, peers: Peers | None, max_body: int) -> None:
        """`max_body`: bytes of a request that the other gateways accept."""
        self._peers = peers
        self._room = max_body - _FRAME
        self._ends: list[msgspec.Raw] = []
        self._states: list[msgspec.Raw] = []
        self._size = 0
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
        self._add(self._ends, text)

    def reset(self, state: dict[str, Any]) -> None:
        """Tell the state of a pod that was reset."""
        if self._peers is not None:
            told = {name: value for name, value in state.items() if name != "proof"}
            self._add(self._states, msgspec.json.encode(told))

    async def close(self) -> None:
        """Send what is left."""
        self._send()
        await self._tasks.close(timeout=1.0)

    def _add(self, news: list[msgspec.Raw], text: bytes) -> None:
        if self._size + len(text) > self._room:
            self._send()
        news.append(msgspec.Raw(text))
        self._size += len(text) + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._peers is None or not self._size:
            return
        body = msgspec.json.encode({"ends": self._ends, "states": self._states})
        self._ends.clear()
        self._states.clear()
        self._size = 0
        self._tasks.spawn(self._peers.tell(body))


def apply(body: bytes, *, view: View, generation_ends: GenerationEnds) -> bool:
    """Apply another gateway's news; return False if they are unreadable."""
    try:
        news = msgspec.json.decode(body, type=_News)
    except msgspec.MsgspecError as error:
        _log.error("the news of another gateway cannot be read: %s", error)
        return False
    for one in news.ends:
        generation_ends.ended(one.instance_id, one.generation, one.end)
    for state in news.states:
        seen = view.instances.get(InstanceId(str(state.get("instance_id"))))
        if seen is not None and seen.reused:
            view.states.heard(seen.instance, state)
    return True
