"""Retires instances whose owner is done: by a proven reset if the backend supports it, else by ending them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_contract.verdicts import SandboxVerdict

from sandlot_gateway.core.backend import Backend
from sandlot_gateway.core.instances import Instance
from sandlot_gateway.core.reuse import takes_back
from sandlot_gateway.core.slot import Generation, Phase
from sandlot_gateway.sidecars import EndAnswer, Sidecars
from sandlot_gateway.tasks import Tasks

from .supply import Supply

_log = logging.getLogger(__name__)

TRIES = 6  # attempts to reach a sidecar that does not answer
PAUSE = 5.0  # seconds between attempts


def _said_so(way: asyncio.Task[bool]) -> bool:
    return way.done() and not way.cancelled() and way.exception() is None and way.result()


class Retirer:
    """All methods but `retired` and `close` return at once; at most `at_once` instances retire concurrently."""

    def __init__(self, *, backend: Backend, sidecars: Sidecars, supply: Supply, at_once: int = 32) -> None:
        self._backend = backend
        self._sidecars = sidecars
        self._supply = supply
        self._slots = supply.slots
        self._at_once = asyncio.Semaphore(at_once)
        # sandbox id -> tasks that retire its instances; True: the sidecar confirmed it
        self._ways: dict[SandboxId, list[asyncio.Task[bool]]] = {}
        self._tasks = Tasks()

    def retire(self, ended: Generation, *, verdict: str) -> None:
        """Retire a slot that has just moved to ENDING."""
        self._begin(ended.sandbox_id, self._retire(ended, verdict=verdict))

    async def retired(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> set[SandboxId]:
        """Wait until the instances of these sandboxes have retired, `timeout` seconds at most.

        Return those whose sidecars confirmed it.
        """
        ways = {one: list(self._ways[one]) for one in sandbox_ids if one in self._ways}
        tasks = [task for tasks in ways.values() for task in tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            if late:
                _log.info("an instance takes long to end")
        return {one for one, tasks in ways.items() if all(map(_said_so, tasks))}

    def discard(self, instance: Instance, *, owner: SandboxId) -> None:
        """End this instance while this sandbox owns it."""
        if self._slots.end(instance.id, owner) is not None:
            self._tasks.spawn(self._end(instance, verdict=SandboxVerdict.SANDBOX_LOST, only_of=owner))

    def discard_unknown(self, instance: Instance) -> None:
        """End this instance, whose owner this gateway does not know, unless another gateway's sandbox owns it."""
        slot = self._slots.get(instance.id)
        # A create that is claiming it goes on elsewhere: for no gateway this may be its sandbox's end.
        claiming = slot.sandbox_id if slot is not None and slot.phase is Phase.CLAIMING else None
        if not self._slots.discard(instance.id):
            return
        if claiming is not None:
            self.give_back(instance, claiming)
        elif self._backend.single_gateway:
            self._tasks.spawn(self._end(instance, verdict=SandboxVerdict.SANDBOX_LOST))
        else:
            self._tasks.spawn(self._end_unclaimed(instance))

    def give_back(self, instance: Instance, sandbox_id: SandboxId, *, only_unused: bool = False) -> None:
        """Remove the instance unless another sandbox owns it, which only its sidecar knows.

        `only_unused`: nor if this sandbox owns it and is in use, or if nobody can be asked about that.
        """
        self._begin(sandbox_id, self._give_back(instance, sandbox_id, only_unused=only_unused))

    def destroy(self, instance_id: InstanceId, *, given_back: bool) -> None:
        """Clean up after a sidecar that ended by itself. `given_back`: as in `Backend.destroy`."""
        self._tasks.spawn(self._destroy(instance_id, given_back=given_back))

    async def close(self, *, timeout: float) -> int:
        """Wait up to `timeout` seconds, then cancel the rest; return their number."""
        return await self._tasks.close(timeout=timeout)

    def _begin(self, sandbox_id: SandboxId, way: Coroutine[Any, Any, bool]) -> None:
        task = self._tasks.spawn(way)
        self._ways.setdefault(sandbox_id, []).append(task)
        task.add_done_callback(lambda task: self._out(sandbox_id, task))

    def _out(self, sandbox_id: SandboxId, task: asyncio.Task[bool]) -> None:
        ways = self._ways[sandbox_id]
        ways.remove(task)
        if not ways:
            del self._ways[sandbox_id]

    async def _retire(self, ended: Generation, *, verdict: str) -> bool:
        instance = ended.instance
        try:
            async with self._at_once:
                # Another gateway that knows the claim would take a reset for the sandbox's end.
                given_back = verdict == SandboxVerdict.GIVEN_BACK
                if not given_back and await self._recycled(ended):
                    self._slots.was_reset(instance.id, ended.generation)
                    return True
                return await self._end(instance, verdict=verdict, only_of=ended.sandbox_id)
        finally:
            self._supply.capacity_freed(instance)

    async def _recycled(self, ended: Generation) -> bool:
        tenant, pools = ended.binding.tenant, self._pools_for(ended)
        if tenant is None or not pools:
            return False
        try:
            return await self._backend.recycle(
                ended.instance, generation=ended.generation, tenant=tenant, pools=pools
            )
        except Exception:
            _log.exception("an instance could not be recycled", extra={"instance": ended.instance.id})
            return False

    def _pools_for(self, ended: Generation) -> list[str]:
        """Return the pools that take the instance back: its own, or any if it was started for a create."""
        instance = ended.instance
        if instance.pool is None:
            specs = [status.spec for status in self._backend.pools()]
        else:
            own = self._backend.pool(instance.pool)
            specs = [own] if own is not None else []
        now = time.time()
        return [
            spec.name
            for spec in specs
            if takes_back(spec, instance, ended.binding, now=now, kind=self._slots.kind)
        ]

    async def _end(self, instance: Instance, *, verdict: str, only_of: SandboxId | None = None) -> bool:
        """End the instance; return whether its sidecar confirmed it."""
        answer = await self._sidecars.end(instance, verdict=verdict, only_of=only_of)
        await self._asked(instance, answer)
        return answer == EndAnswer.ENDED

    async def _give_back(self, instance: Instance, sandbox_id: SandboxId, *, only_unused: bool) -> bool:
        """Release the failed claim; return whether the sidecar confirmed that this sandbox does not own it."""
        answer = await self._answered(
            instance,
            lambda: self._sidecars.end(
                instance, verdict=SandboxVerdict.GIVEN_BACK, only_of=sandbox_id, only_unused=only_unused
            ),
        )
        if only_unused and answer.unheard:
            self._slots.gone(instance.id)
            return False
        await self._asked(instance, answer, given_back=True)
        return not answer.unheard and not (only_unused and answer == EndAnswer.OWNED)

    async def _end_unclaimed(self, instance: Instance) -> None:
        answer = await self._answered(instance, lambda: self._sidecars.end_unclaimed(instance))
        await self._asked(instance, answer)

    async def _answered(self, instance: Instance, ask: Callable[[], Awaitable[EndAnswer]]) -> EndAnswer:
        """Ask the sidecar to end, several times if it does not answer, unless it has said that it has ended."""
        if self._slots.phase(instance.id) is Phase.GONE:
            return EndAnswer.ENDED
        answer = await ask()
        # With other gateways around, an unreachable sidecar is not dead: another may be using it.
        tries = 0 if self._backend.single_gateway else TRIES
        while answer.unheard and tries and self._backend.instance(instance.id) is not None:
            await asyncio.sleep(PAUSE)
            if self._slots.phase(instance.id) is Phase.GONE:
                return EndAnswer.ENDED
            answer = await ask()
            tries -= 1
        return answer

    async def _asked(self, instance: Instance, answer: EndAnswer, *, given_back: bool = False) -> None:
        """Act on a sidecar's answer: forget the slot if another sandbox owns it, else destroy the instance."""
        if answer.kept:
            self._slots.gone(instance.id)
        else:
            await self._destroy(instance.id, given_back=given_back)

    async def _destroy(self, instance_id: InstanceId, *, given_back: bool = False) -> None:
        instance = self._backend.instance(instance_id)
        try:
            await self._backend.destroy(instance_id, given_back=given_back)
        except Exception:
            _log.exception("an instance could not be destroyed", extra={"instance": instance_id})
        self._slots.gone(instance_id)
        self._supply.capacity_freed(instance)
