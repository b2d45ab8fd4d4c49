"""Which looks at a sandbox's disk end what runs: one that found more than before, of too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from sandlot_sidecar.executor.disk_space import MAX_COUNTED
from sandlot_sidecar.server import disk
from sandlot_sidecar.server.disk import Disk
from sandlot_sidecar.server.tasks import Tasks

LIMIT, FILES = 1 << 20, 1000


class Sandbox:
    """What a disk's measuring needs of ops and executor. Each look finds the next of these numbers of files."""

    def __init__(self) -> None:
        self.found: asyncio.Queue[int] = asyncio.Queue()
        self.looks = 0
        self.cost = 0.0  # seconds of CPU of each look
        self.killed: list[int] = []  # at which look
        self.ops = [SimpleNamespace(finished=1.0)]  # those that a kill ends
        self.loop = asyncio.get_running_loop()
        self.tasks = Tasks()
        self.table = SimpleNamespace(running=1)
        self.executor = SimpleNamespace(ask=self._ask)

    async def see(self, *files: int) -> None:
        for number in files:
            self.found.put_nowait(number)
        await self.found.join()

    def spilled(self) -> int:
        return 0

    def kill_running(self, cause: str, *, message: str) -> list[SimpleNamespace]:
        assert cause == "disk_full"
        assert message
        self.killed.append(self.looks)
        return self.ops

    async def _ask(self, do: str, *, counted: Any, grows: bool) -> tuple[dict[str, Any], list[int]]:
        files = await self.found.get()
        # The look before has been judged by now.
        self.found.task_done()
        self.looks += 1
        walked = min(files, (MAX_COUNTED if grows else FILES) + 1)
        answer = {"used": 0, "files": walked, "counted": [walked, 0], "cost": self.cost}
        return {**answer, "limit": LIMIT, "hard": False, "files_limit": FILES}, []


@pytest.fixture
async def sandbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    for pause in ("FIRST", "LEAST", "MOST", "SOONEST"):
        monkeypatch.setattr(disk, pause, 0.001)
    made: Any = Sandbox()
    watched = Disk(made, measured=True)
    watched.look()
    yield made
    watched.close()
    made.tasks.cancel()
    await made.tasks.wait()


async def test_what_is_too_much_and_grows_is_ended(sandbox: Sandbox) -> None:
    await sandbox.see(10, 900, 5000, 0)
    assert sandbox.killed == [3]


async def test_what_makes_room_is_not_ended(sandbox: Sandbox) -> None:
    """The look after an end counts what was written until then; whoever runs next may be who takes it away."""
    await sandbox.see(5000, 9000, 8000, 3000, 1001, 0)
    assert sandbox.killed == [1]


async def test_one_that_had_made_too_many_before_the_next_look_is_ended_by_the_one_after(
    sandbox: Sandbox,
) -> None:
    """Another command, begun after the one that was ended: the walk has to tell 20,000 from 30,000."""
    await sandbox.see(5000, 20_000, 30_000, 0)
    assert sandbox.killed == [1, 3]


async def test_the_look_after_an_end_waits_for_no_share_of_the_cpu(sandbox: Sandbox) -> None:
    """Or a command that begins meanwhile has as long as the share takes, 2,000 s here, to make what counts as old."""
    await sandbox.see(10)
    sandbox.cost = 100.0
    async with asyncio.timeout(30):
        await sandbox.see(5000, 6000)


async def test_the_look_after_an_end_comes_when_the_ended_are_dead(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what they make while they die counts as made by the next command."""
    monkeypatch.setattr(disk, "MOST", 60.0)
    sandbox.ops[0].finished = None
    await sandbox.see(5000)
    sandbox.found.put_nowait(9000)
    await asyncio.sleep(0.05)  # there is no event for a look that does not come
    assert sandbox.looks == 1
    sandbox.ops[0].finished = 1.0
    await sandbox.found.join()
    assert sandbox.killed == [1]
