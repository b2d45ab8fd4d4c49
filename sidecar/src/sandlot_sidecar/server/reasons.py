"""Asks the executor what an op ended of, where its runner could not see that."""

from __future__ import annotations

import time

from sandlot_contract.verdicts import CommandVerdict

from .. import kernel
from ..core.errors import SidecarError
from ..core.op import Do, Op, State
from ..core.verdicts import Ask
from . import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .executor_client import ExecutorClient

monotonic = time.monotonic


class Reasons:
    """What is not answered is not known, and keeps no op from its end."""

    def __init__(self, executor: ExecutorClient) -> None:
        self._executor = executor

    async def explain(self, op: Op) -> Do:
        """Ask what the op is asked for, until it has its end."""
        do = Do.ASK
        try:
            while do is Do.ASK:
                if op.asked is Ask.DISK:
                    do = op.disk_is_full(await self.disk_full(), now=monotonic())
                elif op.asked is Ask.COUNTERS:
                    do = op.counted(await self.counters(op.io.runner_pid), now=monotonic())
                else:
                    lives = await self.init_lives()
                    do = op.init_lives(lives, mortal=kernel.init_is_mortal(), now=monotonic())
        finally:
            if op.state is State.EXPLAINING:
                do = op.abandon(
                    CommandVerdict.SANDBOX_BROKEN, message="what it ended of is not known", now=monotonic()
                )
        return do

    async def init_lives(self) -> bool:
        """Whether the sandbox's first process does."""
        try:
            answer, _ = await self._executor.ask("alive")
        except SidecarError:
            return False
        return bool(answer["alive"])

    async def counters(self, runner: int) -> dict[str, Any]:
        """Facts of the op that a lost runner ran, all of whose processes are dead then; none where nothing tells why."""
        try:
            answer, _ = await self._executor.ask("lost", runner=runner)
        except SidecarError:
            return {}
        return answer["facts"]

    async def disk_full(self) -> str | None:
        """Whose disk is full, if any is: the `sandbox`'s own, or that of its `node`."""
        try:
            full = (await self._executor.ask("full"))[0]["full"]
            if full != "node":
                return full
            # The sandbox may be what has filled it, faster than it was measured.
            held, _ = await self._executor.ask("disk")
        except SidecarError:
            return None
        over = held["limit"] is not None and (
            held["used"] > held["limit"] or held["files"] > held["files_limit"]
        )
        return "sandbox" if over else "node"

    async def kill_tree(self, runner: int) -> None:
        """Kill all that a runner has started; its end is seen by the runner."""
        try:
            await self._executor.ask("kill", runner=runner)
        except SidecarError as error:
            log.failure("kill_failed", error)
