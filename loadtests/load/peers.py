"""Other systems' agents from a package index, run in one of our sandboxes and called directly, as a comparison."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from sandlot import AsyncSandbox
from sandlot.errors import SandlotError

from loadtests.load.baselines import Baselines, MakeSandbox, Taken
from loadtests.load.profile import Baseline
from tests.prime.environments import EnvironmentFailed, environment

START_SECONDS = 60.0
TOKEN = "peer"
Call = Callable[[], Awaitable[float]]  # the seconds of one command


class PeerFailed(Exception):
    """The agent did not start, or did not do what it was asked for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A published package whose `program` answers POST /execute on a port; `options` are its further arguments."""

    package: str
    version: str
    program: str
    also: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    body: tuple[tuple[str, str], ...] = ()  # fields of a request besides the command


PEERS = {
    "swerex": Peer("swe-rex", "1.4.0", "swerex-remote", options=("--auth-token", TOKEN)),
    "rocklet": Peer(
        "rl-rock", "1.11.0", "rocklet", also=("rl-rock[rocklet]==1.11.0",), body=(("sandbox_id", "peer"),)
    ),
}


async def peers(
    taken: Baselines, plan: Baseline, make: MakeSandbox, *, which: Mapping[str, Peer] = PEERS
) -> None:
    """One caller, then `plan.callers` of them, of each agent, and as `sandlot` of ours, through the gateway.

    For sandboxes that see this machine's files and network.
    """
    ours = taken.setdefault("sandlot", Taken())
    async with await make() as box:

        async def exec() -> float:
            begun = time.perf_counter()
            result = await box.exec(plan.command, timeout=60)
            if not result.ok:
                raise PeerFailed(f"exit code {result.exit_code}: {result.stderr[-100:]}")
            return time.perf_counter() - begun

        await exec()
        ours.times += await _one(exec, seconds=plan.seconds)
        ours.rates.append(await _many(exec, callers=plan.callers, seconds=plan.seconds))
    for name, peer in which.items():
        found = taken.setdefault(name, Taken())
        try:
            python = await asyncio.to_thread(environment, peer.package, peer.version, also=peer.also)
            async with (
                await make() as box,
                _running(box, peer, str(python.with_name(peer.program)), plan.command) as call,
            ):
                found.times += await _one(call, seconds=plan.seconds)
                found.rates.append(await _many(call, callers=plan.callers, seconds=plan.seconds))
        except (EnvironmentFailed, SandlotError, PeerFailed, aiohttp.ClientError, ExceptionGroup) as error:
            found.missing = (str(error) or type(error).__name__)[-200:]


class _Call:
    """The plan's command by the agent's own route, over connections that are kept."""

    def __init__(self, session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
        self._session = session
        self._url = url
        self._body = body

    async def __call__(self) -> float:
        begun = time.perf_counter()
        async with self._session.post(f"{self._url}/execute", json=self._body) as answer:
            told = await answer.json()
            if answer.status != 200 or told.get("exit_code") != 0:
                raise PeerFailed(f"{answer.status}: {told}")
        return time.perf_counter() - begun

    async def answered(self) -> None:
        """Waits until the agent listens: it says nothing when it does."""
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with self._session.get(f"{self._url}/is_alive") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _running(box: AsyncSandbox, peer: Peer, program: str, command: list[str]) -> AsyncIterator[_Call]:
    """The agent as a command of the sandbox, killed at the end. Raises PeerFailed."""
    port = _free_port()
    words = [program, "--host", "127.0.0.1", "--port", str(port), *peer.options]
    body = {"command": command, "timeout": 60, **dict(peer.body)}
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        await box.start(words, stdin=False) as process,
        aiohttp.ClientSession(connector=connector, headers={"X-API-Key": TOKEN}) as session,
    ):
        call = _Call(session, f"http://127.0.0.1:{port}", body)
        ended, answered = asyncio.create_task(process.wait()), asyncio.create_task(call.answered())
        try:
            await asyncio.wait((ended, answered), timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                result = ended.result()
                raise PeerFailed(
                    f"{peer.program} ended with {result.exit_code}: {result.stderr.strip()[-100:]}"
                )
            if not answered.done():
                raise PeerFailed(f"{peer.program} did not answer within {START_SECONDS:g} s")
            await call()
            yield call
        finally:
            for task in (ended, answered):
                task.cancel()
            await asyncio.gather(ended, answered, return_exceptions=True)


async def _one(call: Call, *, seconds: float) -> list[float]:
    end = time.monotonic() + seconds
    times = [await call()]
    while time.monotonic() < end:
        times.append(await call())
    return times


async def _many(call: Call, *, callers: int, seconds: float) -> float:
    """Calls a second; what ends after the window does not count."""
    end = time.monotonic() + seconds
    count = 0

    async def caller() -> None:
        nonlocal count
        while time.monotonic() < end:
            await call()
            count += time.monotonic() <= end

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return count / seconds


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
