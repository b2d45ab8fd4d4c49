"""How a gateway shuts down: it serves on while clients leave, lets requests end, and ends sandboxes only if told to."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests import plain_http
from tests.gateway.conftest import running
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed
from tests.stack import Stack
from tests.waiting import SECONDS, until, wait_until


async def test_a_drain_lets_requests_end_and_answers_held_creates(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        await warmed(box)
        go_on = asyncio.Event()
        accepting = asyncio.Event()

        async def slow(claim: dict) -> None:
            accepting.set()
            await go_on.wait()

        for sidecar in machine.sidecars.values():
            sidecar.before_claim = slow
        held = asyncio.create_task(box.create(name="held", idempotency_key="k"))
        await accepting.wait()
        box.ending.begin()
        made = await held
        assert made["status"] == "PENDING"
        go_on.set()
        assert await box.task == 0
    async with running(state_dir, machine) as box:
        assert (await box.create(idempotency_key="k"))["status"] == "RUNNING"
        assert (await box.create(idempotency_key="k"))["id"] == made["id"]
        assert len(machine.claimed()) == 1


def test_one_that_leaves_serves_on_and_has_clients_close_their_connections(state_dir: Path) -> None:
    """A call into a connection that the other end is closing is lost: who calls must be who closes."""
    with Stack(state_dir / "state", options=("--leave", "600")) as stack, client_of(stack) as client:
        assert stack.process is not None
        assert "connection" not in client.get("/api/v1/sandbox").headers
        stack.process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        for _ in range(3):
            told = client.get("/api/v1/sandbox")
            assert (told.status_code, told.headers["connection"]) == (200, "close")
        assert stack.terminate() == 0  # asked again


def test_one_that_leaves_ends_when_its_time_is_over(state_dir: Path) -> None:
    with Stack(state_dir / "state", options=("--leave", "0.5")) as stack:
        assert stack.terminate() == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real sandbox runs a command")
async def test_one_that_is_asked_again_cuts_what_runs(state_dir: Path) -> None:
    options = ("--drain", "600", "--metrics-public")
    with Stack(state_dir / "state", options=options) as stack:
        assert stack.process is not None
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        async with plain_http.async_client(base_url=stack.url, headers=headers, timeout=60) as client:
            made = await client.post("/api/v1/sandbox", json={"docker_image": "host", "wait_seconds": 25})
            command = {"command": "exec sleep 600"}
            running = asyncio.create_task(client.post(f"/sbx/{made.json()['id']}/exec", json=command))

            async def runs() -> bool:
                return "sandlot_running 1" in (await client.get("/metrics")).text

            await until(runs)
            stack.process.send_signal(signal.SIGTERM)
            await until(lambda: not takes_connections(stack))
            assert not running.done()
            assert await asyncio.to_thread(stack.terminate, timeout=60) == 0
            cut = await running
        assert (cut.status_code, cut.json()["error"]) == (502, "gateway_ended")


def takes_connections(stack: Stack) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", stack.port)) == 0


def client_of(stack: Stack) -> httpx.Client:
    return plain_http.client(base_url=stack.url, headers={"Authorization": f"Bearer {stack.api_key}"})


async def test_a_private_stack_takes_its_sandboxes_along(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine, end_sandboxes_on_exit=True) as box:
        await warmed(box)
        made = await box.create()
    assert machine.sidecars == {}
    machine.pools.clear()
    async with running(state_dir, machine) as box:
        told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
        assert (told["status"], told["verdict"]) == ("TERMINATED", "deleted")


async def test_it_ends_when_nobody_uses_it(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
    async with running(state_dir, machine, exit_when_idle=0.2) as box:
        await asyncio.sleep(0.4)  # twice the time without use
        assert not box.task.done(), "it ended with a sandbox alive"
        await box.client.delete(f"/api/v1/sandbox/{made['id']}")
        await box.client.aclose()
        async with asyncio.timeout(30):
            assert await box.task == 0
    assert not (state_dir / "endpoint.json").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the real local backend starts")
def test_sigterm_ends_the_process_with_zero(state_dir: Path) -> None:
    command = [sys.executable, "-m", "sandlot_gateway", "--state-dir", str(state_dir), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("sandlot: ready at http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SECONDS) == 0
    assert not (state_dir / "gateway.sock").exists()
