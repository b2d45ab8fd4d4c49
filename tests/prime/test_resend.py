"""Clients that send a command again when its gateway was killed: it runs again, but never twice at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.prime.conftest import client_python
from tests.prime.environments import client_env
from tests.stack import Stack

pytestmark = [pytest.mark.clients, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]


@contextlib.contextmanager
def waiting_room(stack: Stack) -> Iterator[str]:
    """A URL whose connections reach the stack's gateway, and wait for it while there is none.

    The clients try after 1, 2 and 4 s more; on a busy machine a gateway needs longer than that for its start.
    """
    listening: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_forward(stack, listening)))
    thread.start()
    port, loop, over = listening.result(timeout=30)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


async def _forward(
    stack: Stack, listening: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while True:
                try:
                    there = await asyncio.open_connection("127.0.0.1", stack.port)
                    break
                except OSError:
                    await asyncio.sleep(0.05)
            await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()
            tasks.discard(task)

    over = asyncio.Event()
    async with await asyncio.start_server(joined, "127.0.0.1", 0) as server:
        listening.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), over))
        await over.wait()
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left)


@pytest.mark.parametrize(
    ("version", "resends"), [("0.2.6", False), ("0.2.27", True), ("0.2.36", True), ("0.5.1", False)]
)
def test_command_in_flight_when_its_gateway_is_killed(stack: Stack, version: str, resends: bool):
    python = client_python("prime-sandboxes", version)
    with tempfile.TemporaryDirectory() as home, waiting_room(stack) as url:
        client = subprocess.Popen(
            [str(python), "-B", str(Path(__file__).with_name("resend_script.py"))],
            env=client_env(Path(home), url=url, api_key=stack.api_key),
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n", client.communicate()[1]
            stack.kill()
            stack.start()
            out, err = client.communicate("\n", timeout=200)
        finally:
            client.kill()
            client.wait()
    assert client.returncode == 0, err[-3000:]
    seen = json.loads(out)
    assert seen["left"] == ""
    if resends:
        assert seen == {"answer": ["done\n"], "runs": ["begin", "begin", "end"], "left": ""}
    else:
        assert seen == {"answer": ["APIError"], "runs": ["begin"], "left": ""}
