"""Polls many sidecars for owners, while a create waits: each until it has answered, or for three seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.phases import Phase

from ...core.instances import Instance
from ...data.pool import Answer, DialError, HttpPool, PoolError

_log = logging.getLogger(__name__)

_PATIENCE, _PAUSE = 3.0, 0.25  # seconds for each of them; between two polls of one
_AT_ONCE = 64


class UrgentPolls:
    """Apart from `Prober`: an answer to a poll that was sent before does not count, nor does a webhook.

    `told`: handles an answer, unless its phase is `starting`. `is_there`: whether an instance still exists. `may_start`:
    as of `Prober`.
    """

    def __init__(
        self,
        *,
        pool: HttpPool,
        told: Callable[[Instance, dict[str, Any]], object],
        is_there: Callable[[InstanceId], bool],
        may_start: Callable[[Instance], bool],
    ) -> None:
        self._pool = pool
        self._told = told
        self._is_there = is_there
        self._may_start = may_start

    async def poll(self, instances: Iterable[Instance]) -> list[Instance]:
        """Return once each has said whether it has an owner, or was asked for 3 s, and those that have not said it.

        At most 64 are asked at a time, so 3 s pass for every 64 that do not answer.
        """
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)
        polls = {
            loop.create_task(self._has_answered(instance, places=places)): instance for instance in instances
        }
        if not polls:
            return []
        try:
            await asyncio.wait(polls)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
        return [instance for poll, instance in polls.items() if not poll.result()]

    async def _has_answered(self, instance: Instance, *, places: asyncio.Semaphore) -> bool:
        async with places:
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._until_answered(instance)
            except TimeoutError:
                return False
            except Exception:
                # Raised, the report of one sidecar, perhaps no longer its own, would end every search.
                _log.exception("the state of %s could not be handled", instance.id)
        return True

    async def _until_answered(self, instance: Instance) -> None:
        has_answered = False
        while self._is_there(instance.id):
            may_start = not has_answered and self._may_start(instance)
            try:
                answer = await self._pool.fetch(
                    instance.address,
                    "GET",
                    "/v1/state",
                    headers=[("authorization", f"Bearer {instance.token}")],
                    timeout=_PATIENCE,
                    starting=may_start,
                )
                has_answered = True
                if self._says_owner(instance, answer):
                    return
            except DialError as error:
                if error.refused and not error.tls and may_start:
                    return  # it has not listened yet, so nobody can have claimed it
            except PoolError:
                pass
            await asyncio.sleep(_PAUSE)

    def _says_owner(self, instance: Instance, answer: Answer) -> bool:
        """Return whether the answer says which owner it has, or that it has none."""
        state = answer.json()
        if answer.status != 200 or not isinstance(state, dict) or state.get("claiming"):
            return False
        if state.get("phase") == Phase.STARTING:
            return state.get("sandbox_id") is None  # else it restarts, or is being reset
        self._told(instance, state)
        return True
