"""What the provider of OpenEnv does with an image's own command, when no server starts, and what it leaves behind; then
the page's example, a file.

In one process, as OpenEnv takes 5 s of CPU to import.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import sandlot
from lost import kill_sidecar
from openenv.core.generic_client import GenericEnvClient
from sandlot.integrations.openenv import SandlotProvider
from websockets.exceptions import ConnectionClosed

CREATE = {"labels": ["openenv"]}
SECONDS = 200.0


def left() -> list[Any]:
    return sandlot.Sandbox.list(labels=["openenv"])


def until_nothing_is_left() -> None:
    """A dropped provider's sandbox is deleted by a thread, since garbage collection may interrupt any code."""
    deadline = time.monotonic() + SECONDS
    while found := left():
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def failures_leave_nothing() -> None:
    provider = SandlotProvider(create=CREATE)
    url = provider.start_container("host", start_command="echo no server; sleep 600")
    try:
        provider.start_container("host")
        raise AssertionError("it started two")
    except RuntimeError as error:
        assert "stop_container first" in str(error)
    try:
        while "no server" not in provider.box.logs():
            time.sleep(0.05)
        provider.wait_for_ready(url, timeout_s=0.5)
        raise AssertionError("it is ready")
    except TimeoutError as error:
        assert "no server" in str(error)
    assert left() == []
    url = provider.start_container("host", start_command="sleep 600.25")
    lost = left()[0]
    kill_sidecar("600.25")
    try:
        provider.wait_for_ready(url)
        raise AssertionError("it is ready")
    except RuntimeError as error:
        assert lost.id in str(error)
    try:
        provider.start_container("/no/such/archive.tar", start_command="true")
        raise AssertionError("it started")
    except RuntimeError as error:
        assert "/no/such/archive.tar" in str(error)


def the_images_own_command_serves(image: str) -> None:
    port = os.environ["SANDLOT_SCRIPT_PORT"]
    provider = SandlotProvider(create=CREATE)
    url = provider.start_container(image, int(port), {"PORT": port, "ANSWER": "forty-two"})
    try:
        provider.wait_for_ready(url, timeout_s=SECONDS)
        with urllib.request.urlopen(f"{url}/health") as answer:
            assert answer.read() == b"forty-two"
    finally:
        provider.stop_container()
    assert left() == []


async def a_loss_is_no_step(source: str) -> None:
    """A client whose sandbox is lost raises; nothing is taken for an observation."""
    command = f"{sys.executable} -m uvicorn --app-dir /task --port 8000 openenv_server:app"
    client = await GenericEnvClient.from_docker_image(
        "host",
        provider=SandlotProvider(create=CREATE),
        env_vars={"SOURCE": source},
        start_command=f'mkdir /task && printf %s "$SOURCE" > /task/openenv_server.py && exec {command}',
    )
    try:
        await client.reset()
        assert (await client.step({"number": 2})).observation["total"] == 2
        kill_sidecar("openenv_server:app")
        try:
            told = await client.step({"number": 3})
        except (OSError, RuntimeError, ConnectionClosed):
            return
        raise AssertionError(told)
    finally:
        await client.close()


failures_leave_nothing()
the_images_own_command_serves(sys.argv[2])
asyncio.run(a_loss_is_no_step(Path(__file__).with_name("openenv_server.py").read_text()))
dropped = SandlotProvider(create=CREATE)
dropped.start_container("host", start_command="sleep 600")
del dropped
until_nothing_is_left()
runpy.run_path(sys.argv[1], run_name="__main__")
