"""What becomes of an instance whose owner is done: a proven reset where the backend wants it, else its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from sandlot_gateway.core.backend import Backend, Instance
from sandlot_gateway.sidecars import Sidecars
from sandlot_gateway.supply import Supply
from sandlot_gateway.tasks import Tasks

_log = logging.getLogger(__name__)

TRIES = 6  # to ask a sidecar that does not answer
PAUSE = 5.0  # seconds between two of them


class Retirer:
    """All methods but `retired` and `close` return at once; at most `at_once` instances are retired at one time."""

    def __init__(self, *, backend: Backend, sidecars: Sidecars, supply: Supply, at_once: int = 32) -> None:
        self._backend = backend
        self._sidecars = sidecars
        self._supply = supply
        self._slots = asyncio.Semaphore(at_once)
        self._generations: dict[str, int] = {}  # of the instances on their way out
        self._ways: dict[str, asyncio.Event] = {}  # of the same, set when they are out
        self._tasks = Tasks()

    def generation(self, instance_id: str) -> int | None:
        """The generation of this instance that is being retired; None when none is."""
        return self._generations.get(instance_id)

    def retire(self, instance: Instance, *, verdict: str) -> None:
        """Its owner is done. Twice for one generation is once: the second reset would hit the next owner."""
        if self._generations.get(instance.id) == instance.generation:
            return
        self._generations[instance.id] = instance.generation
        self._ways.setdefault(instance.id, asyncio.Event())
        self._tasks.spawn(self._retire(instance, generation=instance.generation, verdict=verdict))

    async def retired(self, instance_ids: Iterable[str], *, timeout: float) -> None:
        """Until those of them that are on their way out are out, `timeout` seconds at most."""
        ways = [self._ways[instance_id] for instance_id in instance_ids if instance_id in self._ways]
        try:
            async with asyncio.timeout(timeout):
                for way in ways:
                    await way.wait()
        except TimeoutError:
            _log.info("an instance takes long to end")

    def discard(self, instance: Instance) -> None:
        """Nobody shall have this instance (again)."""
        self._supply.forget(instance.id)
        self._tasks.spawn(self._end(instance, verdict="sandbox_lost"))

    def give_back(self, instance: Instance, sandbox_id: str) -> None:
        """Take it away unless another sandbox than this owns it, which its sidecar alone knows."""
        self._supply.forget(instance.id)
        self._tasks.spawn(self._give_back(instance, sandbox_id))

    def destroy(self, instance_id: str) -> None:
        """The sidecar has ended by itself; take away what it left."""
        if instance_id not in self._generations:
            self._tasks.spawn(self._destroy(instance_id))

    async def close(self, *, timeout: float) -> None:
        await self._tasks.close(timeout=timeout)

    async def _retire(self, instance: Instance, *, generation: int, verdict: str) -> None:
        try:
            async with self._slots:
                recycled = False
                try:
                    recycled = await self._backend.recycle(instance)
                except Exception:
                    _log.exception("an instance could not be recycled", extra={"instance": instance.id})
                if not recycled:
                    await self._end(instance, verdict=verdict)
        finally:
            if self._generations.get(instance.id) == generation:
                del self._generations[instance.id]
                self._ways.pop(instance.id).set()
            self._supply.capacity_freed()

    async def _end(self, instance: Instance, *, verdict: str) -> None:
        await self._sidecars.end(instance, verdict=verdict)
        await self._destroy(instance.id)

    async def _give_back(self, instance: Instance, sandbox_id: str) -> None:
        answer = await self._sidecars.end_of(instance, sandbox_id)
        # Where another gateway may have it, it is not taken for dead because it cannot be reached from here.
        tries = 0 if self._backend.finds_all else TRIES
        while answer == "unknown" and tries and self._backend.instance(instance.id) is not None:
            await asyncio.sleep(PAUSE)
            answer = await self._sidecars.end_of(instance, sandbox_id)
            tries -= 1
        if answer != "owned":
            await self._destroy(instance.id)

    async def _destroy(self, instance_id: str) -> None:
        try:
            await self._backend.destroy(instance_id)
        except Exception:
            _log.exception("an instance could not be destroyed", extra={"instance": instance_id})
        self._supply.capacity_freed()
