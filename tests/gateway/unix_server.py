"""An HTTP/1.1 server on a Unix socket, for stand-ins of sidecars: it may leave requests unanswered, and hijack connections."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any


class UnixServer:
    """A subclass gives the answers. Its tasks end with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connections: set[asyncio.Task[Any]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, path=str(self.path))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()
        # The streams' own callback logs a cancelled connection as an error, so they end by their closed socket.
        for task in self._tasks - self._connections:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    async def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        """The status and the body, of bytes or to be JSON. Status 0: the connection ends; 101: it sends back what it gets."""
        raise NotImplementedError

    def _own(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections.add(task)
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines) if k}
                if headers.get("transfer-encoding") == "chunked":
                    body = await _chunks(reader)
                else:
                    body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, target, _ = first.split(" ")
                status, answer = await self._answer(method, target, headers, body)
                if status == 0:
                    return
                if status == 101:
                    writer.write(
                        b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: sandlot-tcp\r\n\r\n" + answer
                    )
                    while data := await reader.read(65536):
                        writer.write(data)
                    return
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            self._connections.discard(task)
            self._writers.discard(writer)
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body
