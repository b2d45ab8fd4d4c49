"""Runs other systems' agents in Sandlot's sandboxes, for comparison; how to call them depends on the place.

`python -m loadtests.load.peers` makes their environments; the cluster's network has no package index.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandlot import AsyncSandbox
from sandlot.errors import SandlotError

from loadtests.load.baselines import Baselines, MakeSandbox, Taken
from loadtests.load.profile import Baseline
from tests.prime.environments import EnvironmentFailed, environment

START_SECONDS = 60.0
TOKEN = "peer"
Call = Callable[[], Awaitable[float]]  # returns the seconds of one command


class PeerFailed(Exception):
    """The agent did not start, or its command failed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A published package whose `program` serves POST /execute on a port; `options` are its other arguments."""

    package: str
    version: str
    program: str
    also: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    body: tuple[tuple[str, str], ...] = ()  # fields of a request besides the command

    def environment(self) -> Path:
        """Return the Python of its environment; make it on first use. Raises EnvironmentFailed."""
        return environment(self.package, self.version, also=self.also)

    def arguments(self, *, port: int) -> list[str]:
        return ["--host", "127.0.0.1", "--port", str(port), *self.options]

    def request(self, command: list[str]) -> dict[str, object]:
        """Return the body of its POST /execute."""
        return {"command": command, "timeout": 60, **dict(self.body)}


PEERS = {
    "swerex": Peer("swe-rex", "1.4.0", "swerex-remote", options=("--auth-token", TOKEN)),
    "rocklet": Peer(
        "rl-rock", "1.11.0", "rocklet", also=("rl-rock[rocklet]==1.11.0",), body=(("sandbox_id", "peer"),)
    ),
}
# Measures one agent in one sandbox and adds the result. Raises PeerFailed, SandlotError.
Measure = Callable[[Taken, Baseline, AsyncSandbox, Peer], Awaitable[None]]


async def peers(
    taken: Baselines,
    plan: Baseline,
    make: MakeSandbox,
    *,
    measure: Measure,
    which: Mapping[str, Peer] = PEERS,
) -> None:
    """Measure Sandlot's `exec` first, by one caller and by many, then each agent in its own sandbox."""
    ours = taken.setdefault("sandlot", Taken())
    async with await make() as box:

        async def exec() -> float:
            begun = time.perf_counter()
            result = await box.exec(plan.command, timeout=60)
            if not result.ok:
                raise PeerFailed(f"exit code {result.exit_code}: {result.stderr[-100:]}")
            return time.perf_counter() - begun

        await exec()
        ours.times += await one_caller(exec, seconds=plan.seconds)
        ours.rates.append(await many_callers(exec, callers=plan.callers, seconds=plan.seconds))
    for name, peer in which.items():
        found = taken.setdefault(name, Taken())
        try:
            await asyncio.to_thread(peer.environment)
            async with await make() as box:
                await measure(found, plan, box, peer)
        except (EnvironmentFailed, SandlotError, PeerFailed, ExceptionGroup) as error:
            found.missing = (str(error) or type(error).__name__)[-200:]


async def one_caller(call: Call, *, seconds: float) -> list[float]:
    end = time.monotonic() + seconds
    times = [await call()]
    while time.monotonic() < end:
        times.append(await call())
    return times


async def many_callers(call: Call, *, callers: int, seconds: float) -> float:
    """Return the calls a second that end within the window."""
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


def main() -> None:
    for name, peer in PEERS.items():
        try:
            peer.environment()
        except EnvironmentFailed as error:
            print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
