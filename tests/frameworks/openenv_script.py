"""Runs OpenEnv's own client against an environment's server in a sandbox, which the provider starts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import sandlot
from openenv.core.generic_client import GenericEnvClient
from sandlot.integrations.openenv import SandlotProvider

# The sandbox has a /tmp of its own, where this tree may be.
SOURCE = Path(__file__).with_name("openenv_server.py").read_text()
SERVER = (
    'mkdir /task && printf %s "$SOURCE" > /task/openenv_server.py && '
    f"exec {sys.executable} -m uvicorn --app-dir /task --port 8000 openenv_server:app"
)
CREATE = {"labels": ["openenv"]}


def left() -> list[Any]:
    return sandlot.Sandbox.list(labels=["openenv"])


async def an_environment_runs() -> None:
    provider = SandlotProvider(create=CREATE)
    arguments = {"env_vars": {"SEED": "7", "SOURCE": SOURCE}, "start_command": SERVER}
    client = await GenericEnvClient.from_docker_image("host", provider=provider, **arguments)
    async with client:
        assert (await client.reset()).observation == {"total": 0, "seed": "7"}
        await client.step({"number": 2})
        result = await client.step({"number": 3})
        assert (result.observation["total"], result.reward, result.done) == (5, 5.0, True)
        assert len(left()) == 1
    assert left() == []
    provider.stop_container()


def failures_leave_nothing() -> None:
    provider = SandlotProvider(create=CREATE)
    url = provider.start_container("host", start_command="echo no server; sleep 600")
    try:
        provider.start_container("host")
        raise AssertionError("it started two")
    except RuntimeError as error:
        assert "stop_container first" in str(error)
    try:
        provider.wait_for_ready(url, timeout_s=0.5)
        raise AssertionError("it is ready")
    except TimeoutError as error:
        assert "no server" in str(error)
    assert left() == []
    url = provider.start_container("host", start_command="sleep 600")
    left_over = left()[0]
    sandlot.Sandbox.connect(left_over.id).delete()
    try:
        provider.wait_for_ready(url)
        raise AssertionError("it is ready")
    except RuntimeError as error:
        assert left_over.id in str(error)
    try:
        provider.start_container("/no/such/archive.tar", start_command="true")
        raise AssertionError("it started")
    except RuntimeError as error:
        assert "/no/such/archive.tar" in str(error)


asyncio.run(an_environment_runs())
failures_leave_nothing()
dropped = SandlotProvider(create=CREATE)
dropped.start_container("host", start_command="sleep 600")
del dropped
assert left() == []
