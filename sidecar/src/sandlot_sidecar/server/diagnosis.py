"""Asks the executor why an op ended, where its runner could not see it."""

from __future__ import annotations

import time

from sandlot_contract.verdicts import CommandVerdict

from .. import kernel
from ..core.errors import SidecarError
from ..core.op import Action, Op, State
from ..core.verdicts import Question
from . import log
from .executor_client import ExecutorError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .executor_client import ExecutorClient

monotonic = time.monotonic


class OpDiagnosis:
    """Asks the executor; a question that it does not answer keeps no op from its end."""

    def __init__(self, executor: ExecutorClient) -> None:
        self._executor = executor

    async def explain(self, op: Op) -> Action:
        """Ask the executor until the op has a verdict; return the action that is left."""
        do = Action.ASK
        try:
            while do is Action.ASK:
                if op.asked is Question.DISK:
                    do = op.disk_is_full(await self.disk_full(), now=monotonic())
                elif op.asked is Question.COUNTERS:
                    do = op.counted(await self.counters(op.io.runner_pid), now=monotonic())
                else:
                    lives = await self.init_lives()
                    do = op.init_lives(lives, mortal=kernel.init_is_mortal(), now=monotonic())
        finally:
            if op.state is State.EXPLAINING:
                do = op.abandon(
                    CommandVerdict.SANDBOX_BROKEN,
                    message="the reason for its end is unknown",
                    now=monotonic(),
                )
        return do

    async def init_lives(self) -> bool:
        """Return whether the sandbox's init is alive."""
        try:
            answer, _ = await self._executor.ask("alive")
        except ExecutorError as error:
            return error.code != "conflict"  # the sandbox does not run
        except SidecarError:
            return False
        return bool(answer["alive"])

    async def counters(self, runner: int) -> dict[str, Any]:
        """Kill what is left of a lost runner's op and return its facts; empty if the counters are inconclusive."""
        try:
            answer, _ = await self._executor.ask("lost", runner=runner)
        except SidecarError:
            return {}
        facts = answer["facts"]
        return {**facts, "init_killed": True} if facts and answer.get("init_killed") else facts

    async def disk_full(self) -> str | None:
        """Return whose disk is full: `sandbox`, `node` or None."""
        try:
            full = (await self._executor.ask("full"))[0]["full"]
            if full != "node":
                return full
            # The sandbox may have filled it, faster than we measure.
            held, _ = await self._executor.ask("disk")
        except SidecarError:
            return None
        over = held["limit"] is not None and (
            held["used"] > held["limit"] or held["files"] > held["files_limit"]
        )
        return "sandbox" if over else "node"

    async def kill_tree(self, runner: int) -> bool:
        """Kill everything that a runner started, which reports the end; return whether that took the sandbox's init."""
        try:
            answer, _ = await self._executor.ask("kill", runner=runner)
        except SidecarError as error:
            log.failure("kill_failed", error)
            return False
        return bool(answer.get("init_killed"))
