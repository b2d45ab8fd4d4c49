"""Writes of Sandboxes: those about one sandbox one after the other, each until the API server takes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sandlot_kube import backoff, ends
from sandlot_kube.client import MERGE_PATCH, KubeClient
from sandlot_kube.errors import KubeError

_log = logging.getLogger(__name__)
_FOR_EVER = (400, 413, 422)  # statuses of a write that the API server will never take
_AT_ONCE = 32

T = TypeVar("T")


class Writes:
    """A sandbox may stand in two resources, the one that was promised and its instance's: with two requests under way
    the one could undo what the other has just written.
    """

    def __init__(self, *, shortest_wait: float, longest_wait: float) -> None:
        """In seconds, between two tries."""
        self._shortest_wait = shortest_wait
        self._longest_wait = longest_wait
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # with how many wait or have it

    async def taken(self, turn: str, name: str, step: Callable[[], Awaitable[T]]) -> T:
        """The step's answer, which is asked for again where it fails. Raises KubeError for what is never taken.

        `turn`: of a sandbox, as Record.turn; `name`: of the resource, for the log.
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
                _log.log(level, "Sandbox %s is written later: %s", name, error)
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


async def unless_ended(client: KubeClient, path: str, status: dict[str, Any]) -> None:
    """Write an end into the Sandbox at `path`; one that it has already stays. Raises KubeError."""
    try:
        await unless_missing(client, "PATCH", f"{path}/status", body={"status": status})
    except KubeError as error:
        if not ends.was_first(error):
            raise


async def unless_missing(client: KubeClient, method: str, path: str, *, body: object = None) -> None:
    """A Sandbox that was deleted takes its pod along, which is more than an end could. Raises KubeError but for a 404."""
    try:
        await client.request(method, path, body=body, content_type=MERGE_PATCH)
    except KubeError as error:
        if error.status != 404:
            raise
