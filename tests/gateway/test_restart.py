"""A gateway that comes back finds everything again; one that ends, ends well."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from sandlot_contract.statuses import Status
from sandlot_contract.template import Template
from sandlot_gateway.archive import Archive
from sandlot_gateway.core.backend import BackendError
from sandlot_gateway.core.instances import PoolSpec
from sandlot_gateway.sandboxes import Sandbox, Spec
from sandlot_gateway.settings import Settings

from tests.gateway.conftest import running
from tests.gateway.machine import Machine
from tests.gateway.warm_pool import warmed
from tests.stack import Stack
from tests.waiting import until, wait_until


async def test_everything_is_found_again(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        await warmed(box)
        alive = await box.create(name="alive", labels=["l"], secrets={"S": "x"}, idempotency_key="k")
        cold = await box.create(name="cold", cpu_cores=2.0)
        ended = await box.create(name="ended")
        machine.of_sandbox(ended["id"]).end("oom", "too much")
        await until(lambda: box.gateway.directory.total_live == 2)
        exposed = await box.client.post(f"/api/v1/sandbox/{alive['id']}/expose", json={"port": 80})
        await until(lambda: box.gateway.supply.slots.warm.count("warm") == 3)
    async with running(state_dir, machine) as box:
        again = (await box.client.get(f"/api/v1/sandbox/{alive['id']}")).json()
        changed = {"updatedAt", "gatewayAuth", "timings"}
        assert {k: v for k, v in again.items() if k not in changed} == {
            k: v for k, v in alive.items() if k not in changed
        }
        assert (await box.create(idempotency_key="k"))["id"] == alive["id"]
        names = [one["name"] for one in (await box.client.get("/api/v1/sandbox")).json()["sandboxes"]]
        assert names == ["ended", "cold", "alive"]
        told = (await box.client.get(f"/api/v1/sandbox/{ended['id']}")).json()
        assert (told["status"], told["verdict"], told["errorType"]) == ("ERROR", "oom", "OOM_KILLED")
        assert box.gateway.supply.slots.warm.count("warm") == 3
        # A token given out before the restart, and one made after it.
        for auth in (alive["gatewayAuth"], cold["gatewayAuth"]):
            url = f"{box.url}/sbx/{auth['job_id']}/exec"
            headers = {"Authorization": f"Bearer {auth['token']}"}
            answer = await box.client.post(url, json={"command": "still"}, headers=headers)
            assert answer.json()["stdout"] == "still"
        listed = (await box.client.get("/api/v1/sandbox/expose/all")).json()["exposures"]
        assert [one["exposure_id"] for one in listed] == [exposed.json()["exposure_id"]]
        await box.client.delete(f"/api/v1/sandbox/{alive['id']}")
        await until(lambda: len(machine.claimed()) == 1)


async def test_one_whose_sidecar_died_meanwhile_has_a_verdict(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        sidecar = machine.of_sandbox(made["id"])
    del machine.sidecars[sidecar.instance_id]
    await sidecar.close()
    for _ in range(2):
        async with running(state_dir, machine) as box:
            told = (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()
            assert (told["status"], told["verdict"]) == ("ERROR", "sidecar_lost")
            gone = await box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"})
            assert (gone.status_code, gone.json()["verdict"]) == (502, "sidecar_lost")


async def test_one_that_was_deleted_while_its_sidecar_lives_on_is_ended(
    state_dir: Path, machine: Machine
) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        one = box.gateway.directory.get(made["id"])
        assert one is not None
        # As if the gateway had died between the record of the end and the cleanup.
        box.gateway.directory.end(one, verdict="deleted")
    assert len(machine.claimed()) == 1
    async with running(state_dir, machine) as box:
        await until(lambda: machine.claimed() == [])
        assert (await box.client.get(f"/api/v1/sandbox/{made['id']}")).json()["verdict"] == "deleted"


async def test_a_pending_create_goes_on_after_the_restart(state_dir: Path, machine: Machine) -> None:
    machine.hold_ready = asyncio.Event()
    async with running(state_dir, machine, spare_seconds=0.0) as box:
        made = await box.create(wait_seconds=0.05, secrets={"S": "hidden"}, idempotency_key="k")
        assert made["status"] == "PENDING"
        (kept,) = (state_dir / "pending").iterdir()
        assert kept.stat().st_mode & 0o077 == 0
    for sidecar in list(machine.sidecars.values()):
        await sidecar.close()
    machine.sidecars.clear()
    machine.instances.clear()
    machine.hold_ready = None
    async with running(state_dir, machine) as box:
        assert (await box.create(idempotency_key="k"))["id"] == made["id"]
        await until(lambda: machine.claimed())
        claim = machine.of_sandbox(made["id"]).claim
        assert claim is not None
        assert claim["secrets"] == {"S": "hidden"}
        assert list((state_dir / "pending").iterdir()) == []


async def test_requests_wait_for_the_recovery(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        made = await box.create()
        box.gateway._recovered.clear()
        asked = asyncio.create_task(box.client.post(f"/sbx/{made['id']}/exec", json={"command": "x"}))
        assert (await box.client.get("/healthz")).status_code == 200
        assert (await box.client.get("/readyz")).status_code == 503
        assert not asked.done()
        box.gateway._recovered.set()
        assert (await asked).status_code == 200


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
        box.ending.set()
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


def client_of(stack: Stack) -> httpx.Client:
    return httpx.Client(base_url=stack.url, headers={"Authorization": f"Bearer {stack.api_key}"})


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


async def test_two_gateways_do_not_share_a_state_directory(state_dir: Path, machine: Machine) -> None:
    async with running(state_dir, machine) as box:
        with pytest.raises(BackendError, match="in use"):
            async with running(state_dir, machine):
                pass
        assert (await box.client.get("/readyz")).status_code == 200
        endpoint = json.loads((state_dir / "endpoint.json").read_text())
        assert endpoint == {"url": box.url, "api_key": "key-a", "pid": os.getpid()}
        assert (state_dir / "endpoint.json").stat().st_mode & 0o077 == 0


async def test_without_any_key_one_is_made_and_kept(state_dir: Path, machine: Machine) -> None:
    keys = []
    for _ in range(2):
        async with running(state_dir, machine, api_keys=None) as box, httpx.AsyncClient() as client:
            keys.append(json.loads((state_dir / "endpoint.json").read_text())["api_key"])
            headers = {"Authorization": f"Bearer {keys[-1]}"}
            me = await client.get(f"{box.url}/api/v1/user/whoami", headers=headers)
            assert me.json()["data"]["id"] == "default"
    assert keys[0] == keys[1]


def test_old_records_go_and_torn_lines_are_left_out(tmp_path: Path) -> None:
    now = 1_000_000.0

    def ended(number: int) -> Sandbox:
        one = Sandbox(
            id=f"sb-{number}",
            tenant="t",
            spec=Spec(name="n", image="host"),
            created_at=now,
            updated_at=now,
            status=Status.TERMINATED,
            ended_at=now,
        )
        archive.append(one)
        return one

    archive = Archive(tmp_path, keep=100.0, limit=3, clock=lambda: now)
    for number in range(5):
        ended(number)
    archive.close()
    (segment,) = tmp_path.glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(b'{"id": "sb-torn", "ten')
    loaded, _ = archive.load()
    assert [one.id for one in loaded] == ["sb-2", "sb-3", "sb-4"]
    os.utime(segment, (now - 200, now - 200))
    now += 150
    ended(9)
    loaded, _ = archive.load()
    assert [one.id for one in loaded] == ["sb-9"]
    assert not segment.exists()
    archive.close()


def test_settings_come_from_the_command_line_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandlot_gateway.__main__ import arguments

    monkeypatch.setenv("SANDLOT_PORT", "1234")
    monkeypatch.setenv("SANDLOT_DRAIN", "7")
    monkeypatch.setenv("SANDLOT_POOL", "a=1,b=python:3.11:2")
    settings = Settings(**arguments(["--port", "0", "--end-sandboxes-on-exit"]))
    assert (settings.port, settings.drain, settings.end_sandboxes_on_exit) == (0, 7.0, True)
    assert settings.pools() == [
        PoolSpec("a", Template(image="host"), 1),
        PoolSpec("b", Template(image="python:3.11"), 2),
    ]
    monkeypatch.setenv("SANDLOT_HOME", "/somewhere")
    assert Settings().state_dir == Path("/somewhere")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--port", "70000"], 2, "--port"),
        (["--pool", "x"], 2, "--pool"),
        (["--backend", "cloud"], 2, "--backend"),
        (["--api-keys", "k:bad tenant"], 1, "tenant"),
        (["--host", "192.0.2.1"], 1, "192.0.2.1"),
    ],
)
def test_a_bad_setting_is_said_in_one_line(
    state_dir: Path, arguments: list[str], code: int, says: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "sandlot_gateway",
        "--state-dir",
        str(state_dir),
        "--port",
        "0",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("length", [58, 90, 200])
def test_a_state_directory_too_long_for_sockets_is_said_with_the_limit(length: int) -> None:
    path = "/tmp/" + "x" * (length - 5)
    command = [sys.executable, "-m", "sandlot_gateway", "--state-dir", path, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith(f"sandlot: state directory {path}: the path has {length} bytes")
    assert "at most 57" in done.stderr
    assert not Path(path).exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the real local backend starts")
def test_sigterm_ends_the_process_with_zero(state_dir: Path) -> None:
    command = [sys.executable, "-m", "sandlot_gateway", "--state-dir", str(state_dir), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("sandlot: ready at http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert not (state_dir / "gateway.sock").exists()
