"""Calls other systems' agents directly, in sandboxes that share this machine's files and network."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from sandlot import AsyncSandbox

from loadtests.load.baselines import Taken
from loadtests.load.peers import START_SECONDS, TOKEN, Peer, PeerFailed, many_callers, one_caller
from loadtests.load.profile import Baseline
from tests.ports import free_port


async def measure(found: Taken, plan: Baseline, box: AsyncSandbox, peer: Peer) -> None:
    """Measure one caller, then `plan.callers`."""
    async with _running(box, peer, plan.command) as call:
        found.times += await one_caller(call, seconds=plan.seconds)
        found.rates.append(await many_callers(call, callers=plan.callers, seconds=plan.seconds))


class _Call:
    """Runs the plan's command through the agent's own route, over persistent connections."""

    def __init__(self, session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> None:
        self._session = session
        self._url = url
        self._body = body

    async def __call__(self) -> float:
        begun = time.perf_counter()
        try:
            async with self._session.post(f"{self._url}/execute", json=self._body) as answer:
                told = await answer.json()
        except aiohttp.ClientError as error:
            raise PeerFailed(str(error) or type(error).__name__) from error
        if answer.status != 200 or told.get("exit_code") != 0:
            raise PeerFailed(f"{answer.status}: {told}")
        return time.perf_counter() - begun

    async def answered(self) -> None:
        """Wait until the agent listens, which it does not report."""
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with self._session.get(f"{self._url}/is_alive") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def _running(box: AsyncSandbox, peer: Peer, command: list[str]) -> AsyncIterator[_Call]:
    """Run the agent as a command of the sandbox and kill it at the end. Raises PeerFailed."""
    port = free_port()
    program = peer.environment().with_name(peer.program)
    words = [str(program), *peer.arguments(port=port)]
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        await box.start(words, stdin=False) as process,
        aiohttp.ClientSession(connector=connector, headers={"X-API-Key": TOKEN}) as session,
    ):
        call = _Call(session, f"http://127.0.0.1:{port}", peer.request(command))
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
