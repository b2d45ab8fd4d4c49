"""Orders and retries writes of Sandbox resources: one at a time per sandbox, until the API server accepts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from sandlot_kube import backoff, ends
from sandlot_kube.answers import read
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Metadata

_log = logging.getLogger(__name__)
_FOR_EVER = (400, 413, 422)  # statuses that no retry can change
_AT_ONCE = 32

T = TypeVar("T")


class Writes:
    """Serialises the writes about one sandbox, because it may have two resources (its pending create's and its
    instance's), and one request could undo what the other has just written.
    """

    def __init__(self, *, shortest_wait: float, longest_wait: float) -> None:
        """Set the seconds between two attempts."""
        self._shortest_wait = shortest_wait
        self._longest_wait = longest_wait
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # with how many wait or have it

    async def taken(self, turn: str, name: str, step: Callable[[], Awaitable[T]]) -> T:
        """Run `step` until it succeeds and return its result. Raises KubeError if no retry can help.

        `turn`: see Record.turn; `name`: the resource's, for the log.
        """
        failures = 0
        while True:
            try:
                async with self._turn(turn), self._slots:
                    return await step()
            except KubeError as error:
                if error.status in _FOR_EVER:
                    raise
                failures += 1
                level = logging.WARNING if failures == 1 else logging.DEBUG
                _log.log(level, "could not write Sandbox %s, retrying: %s", name, error)
            await asyncio.sleep(
                backoff.pause(failures, shortest=self._shortest_wait, longest=self._longest_wait)
            )

    @asynccontextmanager
    async def _turn(self, turn: str) -> AsyncIterator[None]:
        lock, users = self._turns.get(turn, (asyncio.Lock(), 0))
        self._turns[turn] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            _, users = self._turns.pop(turn)
            if users > 1:
                self._turns[turn] = lock, users - 1


async def unless_ended(client: KubeClient, path: str, status: dict[str, Any]) -> str | None:
    """Write an end into the Sandbox at `path` unless it has one; return as `unless_missing`. Raises KubeError."""
    try:
        return await unless_missing(client, "PATCH", f"{path}/status", body={"status": status})
    except KubeError as error:
        if not ends.was_first(error):
            raise
        return ""


async def unless_missing(client: KubeClient, method: str, path: str, *, body: object = None) -> str | None:
    """Send a write; return the uid in the answer, "" without one, or None for a 404, which is no error.

    A deleted Sandbox takes its pod along. Raises KubeError.
    """
    try:
        return uid_in(await client.request(method, path, body=body, content_type=MERGE_PATCH))
    except KubeError as error:
        if error.status != 404:
            raise
        return None


class _Answer(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)


def uid_in(answer: bytes) -> str:
    """Return the uid of the resource in an answer, "" if it has none. Raises KubeUnreachable, as `read`."""
    return read(answer or b"{}", _Answer).metadata.uid


def differ(uid: str, other: str) -> bool:
    """Return whether two resources of one name are not the same, as far as their uids are known."""
    return bool(uid and other) and uid != other
