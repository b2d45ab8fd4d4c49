"""A relay over TCP: what is cut off is reset at both ends, and what is whole ends whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from sandlot_gateway.data.bridge import PortListener
from sandlot_gateway.data.conn import Connection
from sandlot_gateway.data.dial import dial

from tests.waiting import SECONDS

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_UPGRADED = b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"


@asynccontextmanager
async def relayed(serve: Callable[[Streams], Awaitable[None]]) -> AsyncIterator[tuple[PortListener, Streams]]:
    """A listener, and a client of it; `serve` has the other end of the tunnel."""
    serving: list[asyncio.Task[None]] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def work() -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_UPGRADED)
            try:
                await serve((reader, writer))
            finally:
                writer.transport.abort()

        serving.append(asyncio.get_running_loop().create_task(work()))

    target = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = target.sockets[0].getsockname()[1]

    async def tunnel() -> Connection:
        connection = await dial(f"127.0.0.1:{port}", timeout=5)
        connection.begin(b"POST / HTTP/1.1\r\n\r\n", upgrade=True)
        await connection.head()
        return connection

    listener = PortListener(tunnel)
    try:
        client = await asyncio.open_connection("127.0.0.1", await listener.open("127.0.0.1", 0))
        async with asyncio.timeout(SECONDS):
            yield listener, client
            await asyncio.gather(*serving)
        client[1].transport.abort()
    finally:
        await listener.close()
        target.close()
        for task in serving:
            task.cancel()


@pytest.mark.parametrize("half", [False, True], ids=["open", "after the client's end"])
async def test_both_ends_of_a_cut_connection_see_that(half: bool) -> None:
    has_end, is_cut = asyncio.Event(), asyncio.Event()
    ends: list[object] = []

    async def serve(streams: Streams) -> None:
        reader, writer = streams
        writer.write(b"some")
        try:
            ends.append(await reader.read(-1))
            has_end.set()
            await is_cut.wait()
        except ConnectionResetError as error:
            ends.append(type(error))

    async with relayed(serve) as (listener, (reader, writer)):
        assert await reader.readexactly(4) == b"some"
        if half:
            writer.write_eof()
            await has_end.wait()
        await listener.close()
        with pytest.raises(ConnectionResetError):
            await reader.read(-1)
        if half:
            is_cut.set()
    assert ends == ([b""] if half else [ConnectionResetError])


async def test_a_target_that_reads_on_after_its_own_end_gets_everything() -> None:
    sent, got = b"x" * 3_000_000, []

    async def serve(streams: Streams) -> None:
        reader, writer = streams
        writer.write_eof()
        while data := await reader.read(1 << 14):
            got.append(len(data))
            await asyncio.sleep(0)

    async with relayed(serve) as (_, (reader, writer)):
        assert await reader.read(-1) == b""
        writer.write(sent)
        writer.write_eof()
    assert sum(got) == len(sent)
