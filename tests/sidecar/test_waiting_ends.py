"""Ends that wait for the instance's lock, before a reset or another end has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sandlot_sidecar.config import Config
from sandlot_sidecar.core import ends
from sandlot_sidecar.core.errors import ApiError
from sandlot_sidecar.core.instance import Phase
from sandlot_sidecar.server.executor_client import ExecutorError
from sandlot_sidecar.server.instance import Instance
from sandlot_sidecar.server.main import _terminate

from tests.sidecar.instance_states import claim_of
from tests.waiting import loop_turns, until

CONFIG = {"instance_id": "i", "token": "t", "listen": "127.0.0.1:1", "heartbeat": 0}


class NoReset:
    """An executor that does all but reset."""

    gone = False

    async def ask(self, do: str, **arguments: Any) -> tuple[dict[str, Any], list[int]]:
        if do == "reset":
            raise ExecutorError(503, "internal", "no")
        return {}, []


class Graces:
    """In place of a start command whose grace lasts until it is cut."""

    def __init__(self, instance: Any) -> None:
        self.over = asyncio.Event()
        self.begun = self.cut = False
        instance.use.begin_stop = self.begin_stop
        instance.use.stopped = self.over.wait
        instance.use.end_grace = self.end_grace

    def begin_stop(self, cause: str, *, message: str) -> bool:
        self.begun = True
        return True

    def end_grace(self) -> None:
        if self.begun:
            self.cut = True
            self.over.set()


def owned(directory: Path) -> tuple[Any, Graces]:
    executor: Any = NoReset()
    instance: Any = Instance(config=Config({**CONFIG, "state_dir": str(directory)}), executor=executor)
    instance.sandbox.setup = {"overlay": True}
    instance.life.phase, instance.record.claim = (
        Phase.CLAIMED,
        {**claim_of("sb-mine"), "network": "full", "limits": {}},
    )
    return instance, Graces(instance)


@pytest.mark.parametrize(
    ("keep_claim", "conditions", "applies"),
    [
        (True, {}, True),
        (True, {"only_of": "sb-mine"}, True),
        (True, {"generation": 1}, True),
        (True, {"only_of": "sb-another"}, False),
        (True, {"only_unclaimed": True}, False),
        (True, {"generation": 2}, False),
        (False, {}, True),
        (False, {"only_unclaimed": True}, True),
        (False, {"generation": 1}, False),
    ],
)
@pytest.mark.parametrize("when", ["before", "during"])
async def test_only_an_end_that_will_apply_cuts_the_grace_of_a_reset(
    tmp_path: Path, when: str, keep_claim: bool, conditions: dict[str, Any], applies: bool
) -> None:
    instance, graces = owned(tmp_path)
    await instance._lock.acquire()
    reset = asyncio.create_task(instance.reset(keep_claim=keep_claim))
    await loop_turns()
    if when == "during":
        instance._lock.release()
        await until(lambda: graces.begun)
    end = asyncio.create_task(instance.end(ends.IDLE, patience=0.0, **conditions))
    await loop_turns()
    if when == "before":
        instance._lock.release()
    await loop_turns(5)
    begun = when == "during" or not applies
    assert (graces.begun, graces.cut) == (begun, begun and applies)
    graces.over.set()
    with pytest.raises(ApiError, match="no"):  # that it ends with it is no matter here
        await reset
    await asyncio.wait_for(end, 10)
    assert instance.life.phase is Phase.FAILED
    await instance.tasks.wait(timeout=10)


async def test_sigterm_that_waits_behind_an_end_leaves_it_its_grace(tmp_path: Path) -> None:
    instance, graces = owned(tmp_path)
    async with instance._lock:
        end = asyncio.create_task(instance.end(ends.IDLE, patience=0.0))
        await loop_turns()
        terminated = asyncio.create_task(_terminate(instance))
        await loop_turns()
    await until(lambda: graces.begun)
    await loop_turns(5)
    assert not graces.cut
    assert not instance.finished.is_set()
    graces.over.set()
    await asyncio.wait_for(asyncio.gather(end, terminated), 10)
    await asyncio.wait_for(instance.finished.wait(), 10)
