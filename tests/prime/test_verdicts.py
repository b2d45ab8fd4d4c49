"""What each surface says of each end, with the unmodified oldest and newest clients of each way, and verifiers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from connectrpc.errors import ConnectError
from sandlot import AsyncClient, AsyncSandbox, SandboxLost

from tests.e2e.processes import executor, init, sidecars
from tests.prime.conftest import client_python
from tests.prime.server import Server
from tests.prime.verdicts import ROWS, Row
from tests.prime_rpc.support import Box
from tests.stack import Stack, private_stack
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

SLEEP = "sleep 4300"
OLDEST, LAST, NEWEST, VERIFIERS = "0.2.6", "0.2.42", "0.5.1", "verifiers"
# What each row's command is; where the row names none, the command sleeps until its sandbox is struck.
COMMANDS = {
    "the command ends by itself": "exit 3",
    "a signal of its own": "kill -9 $$",
    "there is no such program": "no-such-program",
    "its time limit": SLEEP,
    "its memory limit": "exec python3 -c 'x = bytearray(1 << 30)'",
    "the disk's limit": "head -c 100000000 /dev/zero > /fill",
    "the process limit": 'exec python3 -c \'import subprocess as s\nwhile True: s.Popen(["sleep", "60"])\'',
}


@contextmanager
def talking(server: Server, package: str, version: str, *also: str, argument: str = "") -> Iterator[Any]:
    """A client's own process that answers one command after another."""
    with tempfile.TemporaryDirectory() as home:
        script = Path(__file__).with_name("verdict_script.py")
        process = subprocess.Popen(
            [str(client_python(package, version, also=also)), "-B", str(script), *argument.split()],
            env=server.variables(Path(home)),
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.stdin.close()
            process.wait(30)
            process.stdout.close()


@dataclass
class World:
    """One stack, and a process of each client."""

    stack: Stack
    clients: dict[str, Any]

    async def said(self, client: str, box: Box, command: str, *, timeout: int) -> str:
        process = self.clients[client]
        asked = {"sandbox": box.sandbox_id, "command": command, "timeout": timeout}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        return (await asyncio.to_thread(process.stdout.readline)).strip()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with private_stack() as stack, ExitStack() as ends:
        server = Server(url=stack.url, api_key=stack.api_key, image="host", log=stack.log)
        clients = {
            version: ends.enter_context(talking(server, "prime-sandboxes", version))
            for version in (OLDEST, LAST, NEWEST)
        }
        sdk = "prime-sandboxes==0.2.36"
        clients[VERIFIERS] = ends.enter_context(
            talking(server, "verifiers", "0.1.14", sdk, argument=VERIFIERS)
        )
        yield World(stack, clients)


@pytest.fixture
def make_box(world: World) -> Iterator[Callable[..., Box]]:
    """Sandboxes whose `vm` makes 0.2.42 and verifiers speak REST; one at a time, so that its sidecar is known."""
    stack, made = world.stack, list[Box]()

    def make(**more: Any) -> Box:
        body = {
            "docker_image": "host",
            "vm": False,
            "memory_gb": 0.25,
            "disk_size_gb": 0.05,
            "pids": 64,
            **more,
        }
        headers = {"Authorization": f"Bearer {stack.api_key}"}
        document = httpx.post(f"{stack.url}/api/v1/sandbox", headers=headers, json=body, timeout=60).json()
        assert document["status"] == "RUNNING", document
        auth = document["gatewayAuth"]
        made.append(Box(url=stack.url, api_key=stack.api_key, auth=auth, sandbox_id=document["id"]))
        return made[-1]

    yield make
    for box in made:
        box.delete()


async def until_they_run(box: Box, count: int) -> None:
    async with httpx.AsyncClient(headers=box.headers) as client:

        async def they_run() -> bool:
            ops = (await client.get(f"{box.base}/ops")).json()["ops"]
            return sum(op["state"] == "running" for op in ops) == count

        await until(they_run)


async def strike(cause: str, stack: Stack, box: Box) -> None:
    """What the row is about, now that the commands run."""
    (sidecar,) = sidecars(stack)
    match cause:
        case "the sandbox is deleted":
            await asyncio.to_thread(box.delete)
        case "the sandbox's init is killed":
            os.kill(init(sidecar), signal.SIGKILL)
        case "the sandbox's executor is killed":
            os.kill(executor(sidecar), signal.SIGKILL)
        case "the sidecar is killed":
            os.kill(sidecar, signal.SIGKILL)
        case "the sandbox is evicted":
            os.kill(sidecar, signal.SIGTERM)
        case _:
            assert cause == "the sandbox's deadline"


async def of_the_sdk(stack: Stack, box: Box, command: str, *, timeout: int) -> str:
    async with AsyncClient(url=stack.url, api_key=stack.api_key) as client:
        connected = await AsyncSandbox.connect(box.sandbox_id, client=client)
        try:
            result = await connected.exec(command, timeout=timeout)
        except SandboxLost as lost:
            return f"SandboxLost `{lost.verdict}`" + (", infrastructure" if lost.infrastructure else "")
        code = "" if result.verdict == "timeout" else f", {result.exit_code}"
        return f"`{result.verdict}`{code}"


async def of_rest(box: Box, command: str, *, timeout: int) -> str:
    async with httpx.AsyncClient(headers=box.headers, timeout=120) as client:
        body = {"command": command, "sandbox_id": box.sandbox_id, "timeout": timeout, "env": {}}
        answer = await client.post(f"{box.base}/exec", json=body)
    document = answer.json()
    last = document["exit_code"] if answer.status_code == 200 else document.get("error", "")
    return (
        f"{answer.status_code}, {last}"
        if answer.status_code == 200
        else f"{answer.status_code} {last}".strip()
    )


async def of_rpc(box: Box, command: str, *, timeout: int) -> str:
    try:
        seen = await box.run(command, timeout=timeout)
    except ConnectError as error:
        return error.code.value
    assert seen.end is not None
    return str(seen.end.exit_code)


async def of_control(stack: Stack, box: Box, expected: str) -> str:
    """The sandbox's status; its end may be told to the commands a moment before the gateway hears of it."""
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    deadline = asyncio.get_running_loop().time() + 20
    async with httpx.AsyncClient(headers=headers) as client:
        while True:
            document = (await client.get(f"{stack.url}/api/v1/sandbox/{box.sandbox_id}")).json()
            said = " ".join(filter(None, (document["status"], document["errorType"])))
            if said == expected or asyncio.get_running_loop().time() > deadline:
                return said


def surfaces(world: World, box: Box) -> dict[str, Callable[..., Any]]:
    """Who runs the command; by the names of a row's fields, the two clients of REST apart."""
    stack = world.stack
    return {
        "sdk": lambda command, timeout: of_the_sdk(stack, box, command, timeout=timeout),
        "rest": lambda command, timeout: of_rest(box, command, timeout=timeout),
        "rpc": lambda command, timeout: of_rpc(box, command, timeout=timeout),
        "oldest": lambda command, timeout: world.said(OLDEST, box, command, timeout=timeout),
        "rest_clients": lambda command, timeout: world.said(LAST, box, command, timeout=timeout),
        "rpc_clients": lambda command, timeout: world.said(NEWEST, box, command, timeout=timeout),
        "verifiers": lambda command, timeout: world.said(VERIFIERS, box, command, timeout=timeout),
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.cause)
async def test_every_surface_says_of_every_end_what_the_table_says(
    world: World, make_box: Callable[..., Box], row: Row
) -> None:
    command = COMMANDS.get(row.cause)
    box = make_box(**({"timeout_seconds": 10} if row.cause == "the sandbox's deadline" else {}))
    told: dict[str, str] = {}
    if command is not None:
        timeout = 1 if command == SLEEP else 60
        for name, run in surfaces(world, box).items():
            told[name] = await run(command, timeout)
    else:
        running = {name: asyncio.create_task(run(SLEEP, 60)) for name, run in surfaces(world, box).items()}
        await until_they_run(box, len(running))
        await strike(row.cause, world.stack, box)
        told = {name: await task for name, task in running.items()}
    told["control"] = await of_control(world.stack, box, row.control)
    # 0.2.6 knows an error of its own for the time limit only.
    known = row.rest_clients.startswith("result") or row.rest_clients == "CommandTimeoutError"
    assert told.pop("oldest") == (row.rest_clients if known else "APIError")
    assert {name: text for name, text in told.items() if text not in allowed(row, name)} == {}


def allowed(row: Row, name: str) -> list[str]:
    """What a cell lets a surface say: `502 one or other` is two answers."""
    cell: str = getattr(row, name)
    first, *others = cell.split(" or ")
    status = f"{first.split()[0]} " if name == "rest" and others else ""
    return [first, *(status + other for other in others)]


def test_the_page_has_the_same_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
    table = page.partition("\n## What each surface says\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[1:] == [row.cells() for row in ROWS]
