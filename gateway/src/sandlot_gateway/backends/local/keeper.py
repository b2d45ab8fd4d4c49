"""Keeps pools at their sizes: carries out the planner's decisions and saves the pools to disk."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandlot_contract.ids import InstanceId
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template

from ...atomic_file import write_atomic
from ...core.backend import BackendError, Events, Unavailable
from ...core.instances import Instance, PoolSpec, PoolStatus, Reuse
from .planner import Planner

log = logging.getLogger(__name__)
_AGAIN = 1.0  # seconds


class PoolKeeper:
    """Runs one task; `start` and `destroy` are the backend's functions."""

    def __init__(
        self,
        *,
        planner: Planner,
        path: Path,
        start: Callable[[PoolSpec], Awaitable[Instance]],
        destroy: Callable[[InstanceId], Awaitable[None]],
    ) -> None:
        self.planner = planner
        self._path = path
        self._start = start
        self._destroy = destroy
        self._events: Events | None = None
        self._wake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._tokens = itertools.count()

    def open(self, events: Events) -> None:
        """Load the saved pools and begin to work."""
        self._events = events
        for spec in load_pools(self._path):
            self.planner.set(spec)
        self._loop_task = asyncio.create_task(self._run(), name="pools")

    async def close(self) -> None:
        tasks = [*self._tasks, *([self._loop_task] if self._loop_task else [])]
        self._loop_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        self._wake.set()

    def statuses(self) -> list[PoolStatus]:
        return self.planner.statuses()

    async def set(self, spec: PoolSpec) -> None:
        old = self.planner.spec(spec.name)
        if old is not None and old.template != spec.template:
            await self._empty(spec.name)
        self.planner.set(spec)
        self._save()
        self.wake()

    async def delete(self, name: str) -> bool:
        if self.planner.spec(name) is None:
            return False
        await self._empty(name)
        self._save()
        return True

    def forget_all(self) -> None:
        """Delete all pools with their stack."""
        for spec in self.planner.specs():
            self.planner.remove(spec.name)
        self._path.unlink(missing_ok=True)

    def warm(self) -> dict[str, int]:
        if self._events is None:
            return {}
        return {spec.name: self._events.warm_count(spec.name) for spec in self.planner.specs()}

    async def _empty(self, name: str) -> None:
        """Delete the pool and end its unowned instances."""
        leaving = self.planner.starting(name)
        self.planner.remove(name)
        while self._events is not None and (instance_id := self._events.give_up(name)) is not None:
            leaving.append(instance_id)
        await asyncio.gather(*(self._destroy(instance_id) for instance_id in leaving))

    def _save(self) -> None:
        specs = [asdict(spec) for spec in self.planner.specs()]
        write_atomic(self._path, json.dumps({"pools": specs}, indent=1).encode())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                again_at = self._step(loop.time())
            except Exception:
                log.exception("cannot keep the pools at their sizes, trying again in %g s", _AGAIN)
                again_at = loop.time() + _AGAIN
            try:
                async with asyncio.timeout_at(again_at):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _step(self, now: float) -> float | None:
        if self._events is None:
            return None
        plan = self.planner.plan(now=now, warm=self.warm())
        for name, count in plan.surplus.items():
            for _ in range(count):
                instance_id = self._events.give_up(name)
                if instance_id is None:
                    break
                self._own(self._destroy(instance_id), name=f"give up {instance_id}")
        for name in plan.starts:
            spec = self.planner.spec(name)
            if spec is not None:
                # Counted before the task runs: the next plan must not start it again.
                token = InstanceId(f"coming-{next(self._tokens)}")  # until it has an id
                self.planner.began(name, token)
                self._own(self._one(spec, token), name=f"start for pool {name}")
        return plan.again_at

    async def _one(self, spec: PoolSpec, token: InstanceId) -> None:
        loop = asyncio.get_running_loop()
        try:
            instance = await self._start(spec)
        except asyncio.CancelledError:
            self.planner.gone(token)
            raise
        except BackendError as error:
            if isinstance(error, Unavailable) and error.only_kind:
                wait, text = error.retry_after, str(error)
                self.planner.refused(spec.name, token, now=loop.time(), message=text, retry_after=wait)
            else:
                log.warning("pool %s: a start failed: %s", spec.name, error)
                self.planner.failed(spec.name, token, now=loop.time(), message=str(error))
        except Exception as error:
            log.exception("pool %s: a start failed unexpectedly", spec.name)
            self.planner.failed(spec.name, token, now=loop.time(), message=repr(error))
        else:
            self.planner.gone(token)
            if self.planner.spec(spec.name) != spec and instance.pool == spec.name:
                await self._destroy(instance.id)
        self.wake()

    def _own(self, work: Awaitable[None], *, name: str) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def load_pools(path: Path) -> list[PoolSpec]:
    """Load the saved pools; log an unreadable file and return no pools."""
    try:
        document: Any = json.loads(path.read_bytes())
        return [
            PoolSpec(
                item["name"],
                Template(**item["template"]),
                int(item["size"]),
                item.get("owner"),
                reuse=_reuse(item["reuse"]) if "reuse" in item else Reuse(),
            )
            for item in document["pools"]
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: cannot be read, no pools are kept: %s", path, error)
        return []


def _reuse(item: dict[str, Any]) -> Reuse:
    return Reuse(ReusePolicy(item["policy"]), int(item["max_uses"]), float(item["max_age"]))
