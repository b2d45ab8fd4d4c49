"""What each surface says of a command, whichever backend is behind it: our SDK, the control API, Prime's two wires and
the unmodified oldest and newest clients of each way, and verifiers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectrpc.errors import ConnectError
from sandlot import AsyncClient, AsyncSandbox, SandboxLost

from tests import plain_http
from tests.prime.conftest import client_python
from tests.prime.server import Server
from tests.prime.verdicts import Row
from tests.prime_rpc.support import Box
from tests.waiting import SECONDS, until, wait_until

SLEEP = "sleep 4300"
# What a row's command is, where both backends have the same; where none is named, it sleeps until its sandbox is struck.
SAME_COMMANDS = {
    "the command ends by itself": "exit 3",
    "a signal of its own": "kill -9 $$",
    "there is no such program": "no-such-program",
    "its time limit": SLEEP,
    "its memory limit": "exec python3 -c 'x = bytearray(1 << 30)'",
    "the process limit": 'exec python3 -c \'import subprocess as s\nwhile True: s.Popen(["sleep", "60"])\'',
}
OLDEST, LAST, NEWEST, VERIFIERS = "0.2.6", "0.2.42", "0.5.1", "verifiers"


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
            process.wait(SECONDS)
            process.stdout.close()


@dataclass
class World:
    """A server, and a process of each client."""

    server: Server
    clients: dict[str, Any]

    async def said(self, client: str, box: Box, command: str, *, timeout: int) -> str:
        process = self.clients[client]
        asked = {"sandbox": box.sandbox_id, "command": command, "timeout": timeout}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        return (await asyncio.to_thread(process.stdout.readline)).strip()


@contextmanager
def all_clients(server: Server) -> Iterator[World]:
    """A process of each client for as long as the block lasts."""
    with ExitStack() as ends:
        clients = {
            version: ends.enter_context(talking(server, "prime-sandboxes", version))
            for version in (OLDEST, LAST, NEWEST)
        }
        sdk = "prime-sandboxes==0.2.36"
        clients[VERIFIERS] = ends.enter_context(
            talking(server, "verifiers", "0.1.14", sdk, argument=VERIFIERS)
        )
        yield World(server, clients)


def new_box(server: Server, **fields: Any) -> Box:
    """A sandbox whose `vm` makes 0.2.42 and verifiers speak REST."""
    body = {"docker_image": server.image, "vm": False, **fields}
    headers = {"Authorization": f"Bearer {server.api_key}"}
    with plain_http.client(base_url=f"{server.url}/api/v1", headers=headers, timeout=60) as client:
        answer = client.post("/sandbox", json=body)
        assert answer.is_success, answer.text
        sandbox_id = answer.json()["id"]
        path = f"/sandbox/{sandbox_id}"
        wait_until(lambda: client.get(path).json()["status"] == "RUNNING", seconds=240)
        auth = client.post(f"{path}/auth").json()
    return Box(url=server.url, api_key=server.api_key, auth=auth, sandbox_id=sandbox_id)


@contextmanager
def boxes(server: Server, **fields: Any) -> Iterator[Callable[..., Box]]:
    """Makes sandboxes of these fields, and deletes them at the end of the block."""
    made = list[Box]()

    def make(**more: Any) -> Box:
        made.append(new_box(server, **fields, **more))
        return made[-1]

    yield make
    for box in made:
        box.delete()


async def until_they_run(box: Box, count: int) -> None:
    async with plain_http.async_client(headers=box.headers, timeout=SECONDS) as client:

        async def they_run() -> bool:
            ops = (await client.get(f"{box.base}/ops")).json()["ops"]
            return sum(op["state"] == "running" for op in ops) == count

        await until(they_run)


async def of_the_sdk(server: Server, box: Box, command: str, *, timeout: int) -> str:
    async with AsyncClient(url=server.url, api_key=server.api_key) as client:
        connected = await AsyncSandbox.connect(box.sandbox_id, client=client)
        try:
            result = await connected.exec(command, timeout=timeout)
        except SandboxLost as lost:
            return f"SandboxLost `{lost.verdict}`" + (", infrastructure" if lost.infrastructure else "")
        code = "" if result.verdict == "timeout" else f", {result.exit_code}"
        return f"`{result.verdict}`{code}"


async def of_rest(box: Box, command: str, *, timeout: int) -> str:
    async with plain_http.async_client(headers=box.headers, timeout=120) as client:
        body = {"command": command, "sandbox_id": box.sandbox_id, "timeout": timeout, "env": {}}
        answer = await client.post(f"{box.base}/exec", json=body)
    document = answer.json()
    if answer.status_code == 200:
        return f"200, {document['exit_code']}"
    return f"{answer.status_code} {document.get('error', '')}".strip()


async def of_rpc(box: Box, command: str, *, timeout: int) -> str:
    try:
        seen = await box.run(command, timeout=timeout)
    except ConnectError as error:
        return error.code.value
    assert seen.end is not None
    return str(seen.end.exit_code)


async def of_control(server: Server, box: Box, expected: str) -> str:
    """The sandbox's status; its end may be told to the commands a moment before the gateway hears of it."""
    headers = {"Authorization": f"Bearer {server.api_key}"}
    deadline = asyncio.get_running_loop().time() + SECONDS
    async with plain_http.async_client(headers=headers, timeout=SECONDS) as client:
        while True:
            document = (await client.get(f"{server.url}/api/v1/sandbox/{box.sandbox_id}")).json()
            said = " ".join(filter(None, (document["status"], document["errorType"])))
            if said == expected or asyncio.get_running_loop().time() > deadline:
                return said
            await asyncio.sleep(0.05)  # else its questions keep a core busy


def surfaces(world: World, box: Box) -> dict[str, Callable[..., Any]]:
    """Who runs the command; by the names of a row's fields, the two clients of REST apart."""
    server = world.server
    return {
        "sdk": lambda command, timeout: of_the_sdk(server, box, command, timeout=timeout),
        "rest": lambda command, timeout: of_rest(box, command, timeout=timeout),
        "rpc": lambda command, timeout: of_rpc(box, command, timeout=timeout),
        "oldest": lambda command, timeout: world.said(OLDEST, box, command, timeout=timeout),
        "rest_clients": lambda command, timeout: world.said(LAST, box, command, timeout=timeout),
        "rpc_clients": lambda command, timeout: world.said(NEWEST, box, command, timeout=timeout),
        "verifiers": lambda command, timeout: world.said(VERIFIERS, box, command, timeout=timeout),
    }


async def told_of(
    world: World, box: Box, row: Row, *, command: str | None, timeout: int, strike: Callable[[], Any]
) -> dict[str, str]:
    """What each surface says: of the command, else of one that runs when `strike` is called."""
    told: dict[str, str] = {}
    if command is not None:
        for name, run in surfaces(world, box).items():
            told[name] = await run(command, timeout)
    else:
        running = {name: asyncio.create_task(run(SLEEP, 100)) for name, run in surfaces(world, box).items()}
        await until_they_run(box, len(running))
        await strike()
        told = {name: await task for name, task in running.items()}
    told["control"] = await of_control(world.server, box, row.control)
    return told


def differences(row: Row, told: dict[str, str]) -> dict[str, str]:
    """What is not as the row says, by surface."""
    # 0.2.6 knows an error of its own for the time limit only.
    known = row.rest_clients.startswith("result") or row.rest_clients == "CommandTimeoutError"
    wrong = {name: text for name, text in told.items() if name != "oldest" and text not in allowed(row, name)}
    oldest = told["oldest"]
    if oldest not in (allowed(row, "rest_clients") if known else ["APIError"]):
        wrong["oldest"] = oldest
    return wrong


def allowed(row: Row, name: str) -> list[str]:
    """What a cell lets a surface say: `502 one or other` is two answers."""
    cell: str = getattr(row, name)
    first, *others = cell.split(" or ")
    status = f"{first.split()[0]} " if name == "rest" and others else ""
    return [first, *(status + other for other in others)]
