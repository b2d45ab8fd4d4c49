"""A gateway with thousands of live sandboxes of which some come and go, for a browser outside of its network."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
from sandlot import AsyncClient, AsyncEvents, AsyncSandbox
from sandlot.errors import SandlotError

from loadtests.gateway.stub_slots import StubPool, StubSlots, gateway_over
from loadtests.own_network import in_own_network

POOLS = {"python": "python:3.12", "debian": "debian:bookworm", "task": "ghcr.io/acme/task:7"}  # their images
RUNS = 10  # of the same number of sandboxes each
TURNOVER = "turnover"  # the run of those that come and go


@dataclass(frozen=True, slots=True)
class Size:
    sandboxes: int = 10_000
    spare: int = 96  # warm slots for those that come and go
    rate: float = 10.0  # of those, a second
    callers: int = 32  # of the creates at the beginning


TEN_THOUSAND = Size()


def run_of(number: int, *, sandboxes: int) -> str:
    """Return the run of the sandbox `rollout-NUMBER`."""
    return f"run-{number * RUNS // sandboxes}"


def pool_of(number: int) -> str:
    """Return the pool of the sandbox `rollout-NUMBER`."""
    return list(POOLS)[number % len(POOLS)]


@dataclass
class LiveGateway:
    """`events`: those of the stream so far, by type. `lost`: calls of the turnover that failed, and tasks that ended."""

    url: str
    api_key: str
    process: psutil.Process
    size: Size
    ids: list[str] = field(default_factory=list[str])  # of `rollout-0` and so on
    events: Counter[str] = field(default_factory=Counter[str])
    lost: list[str] = field(default_factory=list[str])
    filled: float = 0.0  # seconds that the creates took
    _slots: StubSlots | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def evict(self, sandbox_id: str) -> None:
        """Let the sandbox's node run out of memory, as its sidecar tells."""
        assert self._slots is not None
        assert self._loop is not None
        ending = self._slots.end(
            sandbox_id, verdict="evicted", message="The node was low on resource: memory."
        )
        asyncio.run_coroutine_threadsafe(ending, self._loop).result(timeout=60)

    @asynccontextmanager
    async def living(self, slots: StubSlots) -> AsyncIterator[None]:
        """Create the sandboxes that stay; then others come and go, and their events are read."""
        self._slots, self._loop = slots, asyncio.get_running_loop()
        client = AsyncClient(url=slots.gateway.url, api_key=slots.gateway.api_key)
        try:
            await self._fill(client)
            async with AsyncEvents(client=client) as stream:
                tasks = [asyncio.create_task(self._listen(stream))]
                tasks += [asyncio.create_task(self._come_and_go(client, number)) for number in range(8)]
                for task in tasks:
                    task.add_done_callback(self._ended)
                try:
                    yield
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await client.aclose()

    async def _fill(self, client: AsyncClient) -> None:
        numbers, begun = iter(range(self.size.sandboxes)), time.monotonic()
        made: dict[int, str] = {}

        async def caller() -> None:
            for number in numbers:
                pool = pool_of(number)
                box = await AsyncSandbox.create(
                    image=POOLS[pool],
                    pool=pool,
                    name=f"rollout-{number}",
                    run=run_of(number, sandboxes=self.size.sandboxes),
                    labels=["grpo", f"step-{number % 100}"],
                    timeout=None,
                    client=client,
                )
                made[number] = box.id

        async with asyncio.TaskGroup() as callers:
            for _ in range(self.size.callers):
                callers.create_task(caller())
        self.ids += [made[number] for number in sorted(made)]
        self.filled = time.monotonic() - begun

    async def _come_and_go(self, client: AsyncClient, caller: int) -> None:
        """Create, use and delete a sandbox again and again, at an eighth of the rate."""
        interval = 8 / self.size.rate
        due = time.monotonic() + interval * caller / 8
        for number in range(1_000_000):
            await asyncio.sleep(due - time.monotonic())
            due = max(due + interval, time.monotonic())
            pool = pool_of(number)
            try:
                box = await AsyncSandbox.create(
                    image=POOLS[pool],
                    pool=pool,
                    name=f"turn-{caller}-{number}",
                    run=TURNOVER,
                    timeout=600,
                    client=client,
                )
                try:
                    await box.exec("true")
                finally:
                    await box.delete()
            except SandlotError as error:
                self.lost.append(f"{type(error).__name__}: {error}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Count a task that ends before it is cancelled: the load or its events are then missing."""
        if not task.cancelled():
            self.lost.append(f"a task of the load ended: {task.exception() or 'its stream is over'!r}")

    async def _listen(self, stream: AsyncEvents) -> None:
        async for event in stream:
            self.events[event.type] += 1


@contextmanager
def live_gateway(size: Size, *, stop: Future[None] | None = None) -> Iterator[LiveGateway]:
    """Run it in threads of its own, in a network namespace; `url` is reachable from here.

    Cancelling `stop` in any thread ends the gateway, also before it is ready. Raises what keeps it from that, and
    RuntimeError if it is ended before.
    """
    ready: Future[LiveGateway] = Future()
    ended: Future[None] = stop or Future()

    def serve() -> None:
        try:
            asyncio.run(_until(ended, in_own_network(lambda: _serving(size, door, ready))))
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(RuntimeError("the gateway was ended before it was ready"))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    # A socket stays in the network in which it was made: it is the way in.
    with (
        socket.create_server(("127.0.0.1", 0), backlog=256) as door,
        ThreadPoolExecutor(1, thread_name_prefix="live-gateway") as thread,
    ):
        serving = thread.submit(serve)
        try:
            yield ready.result()
        finally:
            ended.cancel()
            serving.result()


async def _until(stop: Future[None], work: Coroutine[Any, Any, None]) -> None:
    """Do the work until `stop` is cancelled, then cancel the work and wait for its end."""
    working = asyncio.create_task(work)
    stopped = asyncio.wrap_future(stop)
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        working.cancel()
    await working


async def _serving(size: Size, door: socket.socket, ready: Future[LiveGateway]) -> None:
    each, more = divmod(size.sandboxes, len(POOLS))
    slots = each + bool(more) + size.spare // len(POOLS)
    pools = [StubPool(name, image, slots) for name, image in POOLS.items()]
    async with gateway_over(pools, options=("--record-limit", "20000")) as found:
        host, _, port = found.gateway.url.removeprefix("http://").rpartition(":")
        way_in = await asyncio.start_server(lambda r, w: _relay(r, w, host=host, port=int(port)), sock=door)
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        live = LiveGateway(url, found.gateway.api_key, found.gateway.process, size)
        try:
            async with live.living(found):
                ready.set_result(live)
                await asyncio.Event().wait()  # until it is cancelled
        finally:
            way_in.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, host: str, port: int) -> None:
    inner_reader, inner_writer = await asyncio.open_connection(host, port)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        target.close()

    await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
