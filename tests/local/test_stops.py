"""The stop of the local backend while a removal does not end: it is bounded, kills what it can and names what is left."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from sandlot_contract.new_ids import new_instance_id
from sandlot_gateway.backends.local.layout import Layout
from sandlot_gateway.backends.local.processes import key_of
from sandlot_gateway.backends.local.records import Record
from sandlot_gateway.tokens import Tokens

from tests.gateway.sidecars import StubSidecar
from tests.local.conftest import NEEDS_ROOT, SMALL, Machine, pid_of
from tests.local.gateway import KEY
from tests.stopped import stop
from tests.waiting import loop_turns, until

pytestmark = NEEDS_ROOT


@dataclass
class NeverEnding:
    """A sidecar that says it ends, and does not."""

    id: str
    process: subprocess.Popen[bytes]
    sidecar: StubSidecar


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


@pytest.fixture
async def never_ending(machine: Machine, process: subprocess.Popen[bytes]) -> AsyncIterator[NeverEnding]:
    layout = Layout(machine.state_dir, machine.directory / "cache")
    layout.make()
    instance_id = new_instance_id()
    directory = layout.instance(instance_id)
    directory.path.mkdir()
    sidecar = StubSidecar(
        instance_id=instance_id, token=Tokens(KEY).instance(instance_id), directory=directory.path
    )
    sidecar.path = directory.socket
    await sidecar.start()
    Record(instance_id, SMALL, process=key_of(process.pid)).save(directory.record)
    yield NeverEnding(instance_id, process, sidecar)
    await sidecar.close()


async def test_a_sidecar_that_never_ends_is_killed(
    machine: Machine, never_ending: NeverEnding, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine.gateway(end_grace=3600.0) as gateway:
        removal = asyncio.create_task(gateway.backend.destroy(never_ending.id))
        await until(lambda: never_ending.sidecar.ends_seen)
        async with asyncio.timeout(60):
            await gateway.backend.stop(timeout=20.0)
        await removal
        assert never_ending.process.wait(timeout=30) == -signal.SIGKILL
        assert f"instance {never_ending.id}: its sidecar does not end, killing it" in caplog.text
        assert "left behind" not in caplog.text
    assert machine.left() == []


async def test_what_is_left_is_named_and_the_next_start_removes_it(
    machine: Machine, never_ending: NeverEnding, caplog: pytest.LogCaptureFixture
) -> None:
    never_ending.sidecar.hold_end = asyncio.Event()  # so that the removal waits for its answer
    async with machine.gateway() as gateway:
        removal = asyncio.create_task(gateway.backend.destroy(never_ending.id))
        await until(lambda: never_ending.sidecar.ends_seen)
        async with asyncio.timeout(60):
            await gateway.backend.stop(timeout=0.0)
        with pytest.raises(asyncio.CancelledError):
            await removal
    named = f"instance {never_ending.id}, sidecar process {never_ending.process.pid}"
    assert f"{named}: left behind, for the next start or `sandlot local clean`" in caplog.text
    assert never_ending.process.wait(timeout=30) == -signal.SIGKILL
    async with machine.gateway() as gateway:
        assert list(gateway.lost) == [never_ending.id]
    assert machine.left() == []


async def test_all_sandboxes_end_in_time_though_one_does_not_by_itself(
    machine: Machine, never_ending: NeverEnding
) -> None:
    async with machine.gateway(end_grace=3600.0) as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
        async with asyncio.timeout(60):
            await gateway.backend.destroy_all(timeout=20.0)
        assert machine.left() == []
    assert never_ending.process.wait(timeout=30) == -signal.SIGKILL


async def test_a_private_stack_whose_start_is_given_up_leaves_no_sandbox(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        instance = await gateway.backend.launch(SMALL)
        await gateway.until_ready(instance)
    stop(pid_of(machine, instance.id))  # so that the next start waits for its answer
    following = machine.gateway()
    following.backend.acquire()
    start = asyncio.create_task(following.backend.start(following))
    await loop_turns(10)
    start.cancel()
    await asyncio.wait([start])
    assert start.cancelled()
    await following.backend.destroy_all(timeout=60)
    await following.backend.stop(timeout=60)
    await following.pool.close()
    assert machine.left() == []
