"""Polls sidecars for their state: those of existing pods, and those whose webhook went to another gateway."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.phases import Phase

from ...core.instances import Instance
from ...data.pool import HttpPool, PoolError

_log = logging.getLogger(__name__)


_EAGER, _EAGER_PAUSE, _PAUSE = 10.0, 0.25, 1.0  # seconds


class Prober:
    """Polls each sidecar until `told` accepts an answer; `told` sees only phases other than `starting`, and no claiming.

    `is_there`: whether an instance still exists; else nothing would end the polls of one that is gone. `may_start`:
    whether its sidecar may not have begun to listen, as far as anyone knows.

    Polls four times a second at first, because a cold start for this gateway's caller may report to another gateway;
    after a while once a second, because thousands of sidecars behind a broken network would take half a core.
    """

    def __init__(
        self,
        *,
        pool: HttpPool,
        told: Callable[[Instance, dict[str, Any]], bool],
        is_there: Callable[[InstanceId], bool],
        may_start: Callable[[Instance], bool],
        at_once: int = 64,
    ) -> None:
        self._pool = pool
        self._told = told
        self._is_there = is_there
        self._may_start = may_start
        self._slots = asyncio.Semaphore(at_once)
        self._tasks: dict[InstanceId, asyncio.Task[None]] = {}
        self._left: set[asyncio.Task[None]] = set()  # cancelled, not finished yet
        self._again: set[InstanceId] = set()  # asked for since the poll in flight was sent
        self._untried: set[InstanceId] = set()
        self._all_tried = asyncio.Event()
        self._closed = False

    def ask(self, instance: Instance, *, since_now: bool = False) -> None:
        """Begin polling, unless it is polled already. Return at once.

        `since_now`: an answer to a poll that is in flight does not count, because it may be older than what the caller
        knows.
        """
        if self._closed:  # a late answer may ask for one more poll, which nobody would end
            return
        instance_id = instance.id
        before = self._tasks.get(instance_id)
        # A finished task may still be listed: its answer predates this call.
        if before is None or before.done():
            task = asyncio.get_running_loop().create_task(self._ask(instance))
            self._tasks[instance_id] = task
            self._untried.add(instance_id)
            task.add_done_callback(lambda task: self._finished(instance_id, task))
        elif since_now:
            self._again.add(instance_id)

    def leave(self, instance_id: InstanceId) -> None:
        """Stop polling."""
        task = self._tasks.get(instance_id)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            self._finished(instance_id, task)  # at once: a new `ask` must begin a new poll

    async def settle(self, *, timeout: float) -> bool:
        """Wait until each sidecar has been tried once; return whether that is so."""
        try:
            async with asyncio.timeout(timeout):
                while self._untried:
                    self._all_tried.clear()
                    await self._all_tried.wait()
        except TimeoutError:
            _log.warning("%d sidecars have not answered yet", len(self._untried))
        return not self._untried

    async def close(self) -> None:
        """End all polls; later ones are not begun."""
        self._closed = True
        tasks = [*self._tasks.values(), *self._left]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, instance_id: InstanceId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(instance_id) is task:
            del self._tasks[instance_id]
            self._again.discard(instance_id)
            self._tried(instance_id)

    def _tried(self, instance_id: InstanceId) -> None:
        self._untried.discard(instance_id)
        if not self._untried:
            self._all_tried.set()

    async def _ask(self, instance: Instance) -> None:
        headers = [("authorization", f"Bearer {instance.token}")]
        loop = asyncio.get_running_loop()
        eager_until = loop.time() + _EAGER
        pause = 0.05
        refused = answered = False
        while self._is_there(instance.id):
            async with self._slots:
                self._again.discard(instance.id)
                try:
                    answer = await self._pool.fetch(
                        instance.address,
                        "GET",
                        "/v1/state",
                        headers=headers,
                        timeout=3.0,
                        starting=not answered and self._may_start(instance),
                    )
                    answered = True
                    state = answer.json()
                except PoolError:
                    answer, state = None, None
            if answer is not None and answer.status == 401 and not refused:
                refused = True
                _log.error(
                    "sidecar %s rejected this gateway's token; do the master keys differ?", instance.id
                )
            if (
                answer is not None
                and answer.status == 200
                and isinstance(state, dict)
                and state.get("phase") != Phase.STARTING
                and not state.get("claiming")
                and self._told(instance, state)
                and instance.id not in self._again
            ):
                return
            self._tried(instance.id)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 1.5, _EAGER_PAUSE if loop.time() < eager_until else _PAUSE)
