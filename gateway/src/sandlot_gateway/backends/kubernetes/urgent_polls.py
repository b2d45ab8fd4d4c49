"""Polls many sidecars for owners, while creates wait: each until it has answered, or for three seconds."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.phases import Phase

from ...core.instances import Instance
from ...data.pool import Answer, DialError, HttpPool, PoolError
from ...tasks import Tasks

_log = logging.getLogger(__name__)

_PATIENCE, _PAUSE = 3.0, 0.25  # seconds for each of them, from its first poll on; between two polls of one
_AT_ONCE, _BRIEF = 64, 0.25  # polls in flight that are younger than this, in seconds
_SLOW = 192  # older ones beside them


@dataclass(eq=False)
class _Poll:
    """Of one sidecar, for one search or several."""

    instance: Instance
    task: asyncio.Task[bool] = field(init=False)
    searches: int = 0


class UrgentPolls:
    """Apart from `Prober`: an answer to a poll that was sent before does not count, nor does a webhook.

    All searches together have 64 polls in flight, and 192 that have had no answer for a quarter of a second. A further
    one without an answer is given up, and repeated after those that wait: a quiet sidecar holds up no other.

    `told`: handles an answer, unless its phase is `starting`. `is_there`: whether an instance still exists. `may_start`:
    as of `Prober`. `has_address`: whether the address of an existing one is known, so that it can be polled.
    """

    def __init__(
        self,
        *,
        pool: HttpPool,
        told: Callable[[Instance, dict[str, Any]], object],
        is_there: Callable[[InstanceId], bool],
        may_start: Callable[[Instance], bool],
        has_address: Callable[[Instance], bool],
    ) -> None:
        self._pool = pool
        self._told = told
        self._is_there = is_there
        self._may_start = may_start
        self._has_address = has_address
        self._brief = asyncio.Semaphore(_AT_ONCE)
        self._slow = asyncio.Semaphore(_SLOW)
        self._unsent: dict[InstanceId, _Poll] = {}  # that a further search can share
        self._tasks = Tasks()
        self._closed = False

    async def poll(self, instances: Iterable[Instance]) -> list[Instance]:
        """Return once each has said whether it has an owner, or was asked for 3 s, and those that have not said it.

        One without a known address is waited for 3 s, and asked then.
        """
        if self._closed:
            return []
        polls = [self._begun(instance) for instance in instances]
        try:
            if polls:
                await asyncio.wait([poll.task for poll in polls])
        finally:
            await self._leave(polls)
        return [poll.instance for poll in polls if poll.task.cancelled() or not poll.task.result()]

    async def close(self) -> None:
        """End all polls; later ones are not begun."""
        self._closed = True
        await self._tasks.close()

    def _begun(self, instance: Instance) -> _Poll:
        poll = self._unsent.get(instance.id)
        if poll is None:
            poll = _Poll(instance)
            poll.task = self._tasks.spawn(self._has_answered(poll))
            if self._has_address(
                instance
            ):  # else it has waited for its address, and waits for no other search anew
                self._unsent[instance.id] = poll
        poll.searches += 1
        return poll

    async def _leave(self, polls: list[_Poll]) -> None:
        unwanted = []
        for poll in polls:
            poll.searches -= 1
            if not poll.searches and not poll.task.done():
                self._is_sent(poll)  # so that no further search shares it
                poll.task.cancel()
                unwanted.append(poll.task)
        await asyncio.gather(*unwanted, return_exceptions=True)

    def _is_sent(self, poll: _Poll) -> None:
        if self._unsent.get(poll.instance.id) is poll:
            del self._unsent[poll.instance.id]

    async def _has_answered(self, poll: _Poll) -> bool:
        try:
            return await self._reachable(poll.instance) and await self._until_answered(poll)
        except Exception:
            # Raised, the report of one sidecar, perhaps no longer its own, would end every search.
            _log.exception("the state of %s could not be handled", poll.instance.id)
            return True
        finally:
            self._is_sent(poll)

    async def _reachable(self, instance: Instance) -> bool:
        clock = asyncio.get_running_loop().time
        until = clock() + _PATIENCE
        while self._is_there(instance.id) and not self._has_address(instance):
            if clock() >= until:
                return False
            await asyncio.sleep(_PAUSE)
        return True

    async def _until_answered(self, poll: _Poll) -> bool:
        instance, clock = poll.instance, asyncio.get_running_loop().time
        until = math.inf
        has_answered = False
        while self._is_there(instance.id):
            may_start = not has_answered and self._may_start(instance)
            try:
                async with self._brief:
                    until = min(until, clock() + _PATIENCE)
                    self._is_sent(poll)
                    if (left := until - clock()) <= 0:
                        return False
                    asking = asyncio.ensure_future(self._ask(instance, may_start=may_start, timeout=left))
                    await _answered(asking, timeout=_BRIEF)
                answer = await self._answer(asking, until=until)
                if answer is not None:
                    has_answered = True
                    if self._says_owner(instance, answer):
                        return True
            except DialError as error:
                if error.nothing_listens and may_start:
                    return True  # it has not listened yet, so nobody can have claimed it
            except PoolError:
                pass
            if clock() >= until:
                return False
            await asyncio.sleep(_PAUSE)
        return True

    async def _ask(self, instance: Instance, *, may_start: bool, timeout: float) -> Answer:
        headers = [("authorization", f"Bearer {instance.token}")]
        return await self._pool.fetch(
            instance.address, "GET", "/v1/state", headers=headers, timeout=timeout, starting=may_start
        )

    async def _answer(self, asking: asyncio.Future[Answer], *, until: float) -> Answer | None:
        """Return the answer, None if there is none by then or too many others are as slow. Raises PoolError."""
        if not asking.done() and not self._slow.locked():
            async with self._slow:
                await _answered(asking, timeout=until - asyncio.get_running_loop().time())
        if asking.done():
            return asking.result()
        await _end(asking)
        return None

    def _says_owner(self, instance: Instance, answer: Answer) -> bool:
        """Return whether the answer says which owner it has, or that it has none."""
        state = answer.json()
        if answer.status != 200 or not isinstance(state, dict) or state.get("claiming"):
            return False
        if state.get("phase") == Phase.STARTING:
            return state.get("sandbox_id") is None  # else it restarts, or is being reset
        self._told(instance, state)
        return True


async def _answered(asking: asyncio.Future[Answer], *, timeout: float) -> None:
    """Wait for the answer, `timeout` seconds at most."""
    try:
        await asyncio.wait([asking], timeout=timeout)
    except asyncio.CancelledError:
        await _end(asking)
        raise


async def _end(asking: asyncio.Future[Answer]) -> None:
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
