"""A second signal hurries whatever a gateway's end waits for: its start, its requests, its cleanups, its backend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandlot_gateway.ending import EndRequests
from sandlot_gateway.serve import serve
from sandlot_gateway.settings import Settings
from sandlot_gateway.stop_times import HURRIED, IN_ORDER

from tests.gateway.conftest import API_KEYS, running
from tests.gateway.machine import Machine, StubBackend
from tests.waiting import until


async def test_one_signal_leaves_the_stop_its_time(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        box.ending.ask()
        assert await box.task == 0
    assert machine.stops == [IN_ORDER.backend]


async def test_a_signal_during_the_stop_begins_it_again_with_less_time(
    state_dir: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.hold_stop = True
    async with running(state_dir, machine) as box:
        box.ending.ask()
        await until(lambda: machine.stops)
        box.ending.ask()
        assert await box.task == 0
    assert machine.stops == [IN_ORDER.backend, HURRIED.backend]
    assert "asked again to end" in caplog.text


async def test_further_signals_change_nothing(state_dir: Path, machine: Machine) -> None:
    machine.hold_stop = True
    async with running(state_dir, machine) as box:
        for _ in range(3):
            box.ending.ask()
        await until(lambda: machine.stops)
        box.ending.ask()
        assert await box.task == 0
    assert machine.stops == [HURRIED.backend]


async def test_after_an_idle_exit_the_first_signal_is_a_further_one(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine, exit_when_idle=0.01, leave=3600) as box:
        await until(lambda: box.gateway.leaving)
        box.ending.ask()
        async with asyncio.timeout(30):
            assert await box.task == 0
    assert machine.stops == [HURRIED.backend]


async def test_a_second_signal_ends_a_start(
    state_dir: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.hold_start = True
    requests = EndRequests()
    backends: list[StubBackend] = []

    def make_backend(settings: Settings, tokens: object, pool: object) -> StubBackend:
        backends.append(StubBackend(machine, tokens=tokens, webhook=""))  # type: ignore[arg-type]
        return backends[0]

    settings = Settings(state_dir=state_dir, port=0, webhook_port=0, api_keys=API_KEYS)
    serving = asyncio.create_task(
        serve(
            settings,
            make_backend=make_backend,
            requests=requests,
            announce=lambda *_: pytest.fail("it got ready"),
        )
    )
    await until(lambda: backends and backends[0].events)
    requests.ask()
    requests.ask()
    async with asyncio.timeout(30):
        assert await serving == 0
    assert machine.stops == [HURRIED.backend]
    assert "the start is given up" in caplog.text


async def test_a_cleanup_that_is_given_up_is_logged(
    state_dir: Path, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        sidecar = machine.of_sandbox(made["id"])
        sidecar.hold_end = asyncio.Event()
        deleting = asyncio.create_task(box.client.delete(f"/api/v1/sandbox/{made['id']}"))
        await until(lambda: sidecar.ends_seen)
        box.ending.ask()
        box.ending.ask()
        await asyncio.gather(deleting, return_exceptions=True)
        assert await box.task == 0
        sidecar.hold_end.set()
    assert "gave up 1 creates or cleanups" in caplog.text
    async with running(state_dir, machine) as box:
        told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
        assert (told["status"], told["verdict"]) == ("TERMINATED", "deleted"), "its record was lost"
