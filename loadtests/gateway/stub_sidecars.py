"""A stub for many idle sidecars: the floor of the gateway's own cost. Prints `ready` when it listens."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import httptools
import uvloop

ANSWER_BODY = (
    b'{"stdout":"","stderr":"","exit_code":0,"op_id":"op-0000000000000001","verdict":"exited","usage":'
    b'{"queued":0.0,"wall":0.001,"cpu":0.001}}'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-sandlot-verdict: exited\r\n\r\n%b"
    % (len(ANSWER_BODY), ANSWER_BODY)
)


class Stub(asyncio.Protocol):
    """One connection: every request gets the same response."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_message_complete(self) -> None:
        self.transport.write(ANSWER)


def addresses(count: int, *, directory: Path | None, port: int) -> list[str]:
    """Return `count` addresses: Unix sockets in a directory, else 127.0.x.y on one port."""
    if directory is not None:
        return [f"unix:{directory}/{n}.sock" for n in range(count)]
    return [f"127.{1 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}:{port}" for n in range(count)]


async def serve(listen_on: list[str]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    servers: list[asyncio.AbstractServer] = []
    for address in listen_on:
        if address.startswith("unix:"):
            servers.append(await loop.create_unix_server(Stub, address[5:], backlog=256))
        else:
            host, _, port = address.rpartition(":")
            servers.append(await loop.create_server(Stub, host, int(port), backlog=256))
    print("ready", flush=True)
    await stop.wait()
    for server in servers:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--unix", type=Path, default=None, help="a directory for Unix sockets instead of TCP")
    parser.add_argument("--port", type=int, default=18700)
    arguments = parser.parse_args()
    uvloop.run(serve(addresses(arguments.count, directory=arguments.unix, port=arguments.port)))


if __name__ == "__main__":
    main()
