"""How long a start may take, and that its turn is waited for: given up for that, it would go behind all the others."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.gateway.conftest import Running, running
from tests.gateway.machine import Machine
from tests.waiting import until


async def pending(gateway: Running) -> str:
    """A create that waits for its start."""
    gateway.machine.hold_ready = asyncio.Event()
    made = await gateway.create(wait_seconds=0)
    assert made["status"] == "PENDING"
    return made["id"]


async def ended(gateway: Running, sandbox_id: str) -> Any:
    sandbox = gateway.gateway.directory.get(sandbox_id)
    return await until(lambda: sandbox if sandbox.status == "ERROR" else None)


async def test_a_start_whose_turn_has_not_come_is_waited_for(state_dir: Path, machine: Machine) -> None:
    machine.begun, timeout = None, 4.0  # enough for what is ready to be told of
    async with running(state_dir, machine, start_timeout=timeout) as gateway:
        sandbox_id = await pending(gateway)
        await until(lambda: machine.looked)
        assert (machine.launched, gateway.backend.destroyed) == (1, [])
        machine.begun = time.monotonic()
        machine.hold_ready.set()
        sandbox = gateway.gateway.directory.get(sandbox_id)
        await until(lambda: sandbox.status == "RUNNING")
        assert machine.launched == 1
        assert sandbox.queued >= timeout, "the wait for its turn is no start"


async def test_one_that_has_begun_is_given_up_after_its_time(state_dir: Path, machine: Machine) -> None:
    machine.begun, timeout = None, 1.0  # it is given up after four, if it has not begun
    async with running(state_dir, machine, start_timeout=timeout) as gateway:
        sandbox_id = await pending(gateway)
        await until(lambda: machine.looked)
        begun = machine.begun = time.monotonic()
        await until(lambda: gateway.backend.destroyed)
        assert time.monotonic() - begun >= timeout
        sandbox = await ended(gateway, sandbox_id)
        assert (sandbox.verdict, machine.launched) == ("start_failed", 2)
        assert "not ready" in sandbox.message


async def test_a_turn_that_never_comes_ends_the_create(state_dir: Path, machine: Machine) -> None:
    machine.begun = None
    async with running(state_dir, machine, start_timeout=0.5) as gateway:
        sandbox = await ended(gateway, await pending(gateway))
        assert (sandbox.verdict, machine.launched) == ("start_failed", 2)
        assert machine.looked > machine.launched, "each was looked at again before it was given up"


async def test_a_turn_that_nobody_waits_for_any_more_is_given_to_the_next(
    state_dir: Path, machine: Machine
) -> None:
    machine.begun = None
    async with running(state_dir, machine) as gateway:
        supply = gateway.gateway.supply
        first = await pending(gateway)
        await until(lambda: machine.instances)
        [of_first] = machine.instances
        second = await pending(gateway)
        await until(lambda: len(machine.instances) == 2)
        assert (await gateway.client.delete(f"/api/v1/sandbox/{first}")).status_code == 200
        await until(lambda: gateway.backend.destroyed == [of_first])
        assert (supply.starting, machine.launched) == (1, 2)
        machine.hold_ready.set()
        sandbox = gateway.gateway.directory.get(second)
        await until(lambda: sandbox.status == "RUNNING")


async def test_a_start_that_has_begun_is_kept_for_whoever_comes_next(
    state_dir: Path, machine: Machine
) -> None:
    machine.begun = 0.0
    async with running(state_dir, machine) as gateway:
        first = await pending(gateway)
        await until(lambda: machine.instances)
        await gateway.client.delete(f"/api/v1/sandbox/{first}")
        machine.hold_ready.set()
        made = await gateway.create()
        assert (made["status"], machine.launched, gateway.backend.destroyed) == ("RUNNING", 1, [])
