"""A small real server that speaks the documented routes, runs real commands, and fails on demand.

It stands in for a gateway with one sidecar behind it, so that lost connections, busy answers and dead sandboxes can
be had at an exact moment. The same tests run against the real stack.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

from tests.sdk.service.answers import answer, raw
from tests.sdk.service.control import ControlApi
from tests.sdk.service.data_plane import DataPlane
from tests.sdk.service.faults import Fault
from tests.sdk.service.requests import Call, Headers, Seen
from tests.sdk.service.state import State
from tests.waiting import wait_until


class Service(State):
    """The server, in a thread of its own. Everything it saw is in `seen`; `faults` are used up in order."""

    def __init__(self, root: Path, *, port: int = 0) -> None:
        """`port`: else any that is free, which may be another program's as soon as the server is gone."""
        super().__init__(root)
        self.port = port
        self.faults: deque[Fault] = deque()
        self.seen: list[Seen] = []
        self.connections = 0
        self.open_now = 0
        self._tasks: set[asyncio.Task[object]] = set()
        self._control = ControlApi(self)
        self._data = DataPlane(self)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for op in self.ops.values():
            op.stop()
        runs = self._data.commands.runs
        if runs:  # each ends with its process: a cancelled one would leave its pipes open
            await asyncio.wait(runs, timeout=30)
        for task in self._tasks | runs:
            task.cancel()
        await asyncio.gather(*self._tasks, *runs, return_exceptions=True)

    def environment(self) -> dict[str, str]:
        """This process's environment for one that calls the server."""
        return {**os.environ, "SANDLOT_URL": self.url, "SANDLOT_API_KEY": self.api_key}

    def calls(self, route: str, method: str | None = None) -> list[Seen]:
        """The requests whose path ended so."""
        return [
            seen
            for seen in self.seen
            if seen.path.partition("?")[0].endswith(route) and method in (None, seen.method)
        ]

    async def until_running(self, op_id: str) -> None:
        await asyncio.to_thread(wait_until, lambda: op_id in self.ops and self.ops[op_id].process)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_now += 1
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open_now -= 1
            self._tasks.discard(task)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        plain = unquote(path.partition("?")[0])
        early = next((one for one in list(self.faults) if one.early and plain.endswith(one.route)), None)
        if early is not None:
            self.faults.remove(early)
            answer(writer, early.status, early.body, early.headers)
        body = await self._body(reader, headers)
        self.seen.append(Seen(method, path, headers, body))
        if early is not None:
            return True
        fault = next((item for item in list(self.faults) if plain.endswith(item.route)), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.hold:
                if fault.status:
                    raw(writer, fault.status, b"", fault.headers, missing=1)
                await asyncio.Event().wait()  # until the client leaves
            if fault.refuse:
                return False
            if fault.status:
                if fault.cut is not None:
                    raw(writer, fault.status, b"x" * fault.cut, fault.headers, missing=1)
                    return False
                return answer(writer, fault.status, fault.body, fault.headers)
        raw_query = urlsplit(path).query
        query = {key: values[0] for key, values in parse_qs(raw_query, errors="surrogateescape").items()}
        call = Call(method, plain, query, raw_query, headers, body, writer, fault)
        handler = self._control if plain.startswith("/api/v1") else self._data
        told = await handler.handle(call)
        if fault is not None and fault.lose:
            return False
        if told is None:
            return call.whole
        status, document, extra = told
        return answer(writer, status, document, extra)

    async def _body(self, reader: asyncio.StreamReader, headers: Headers) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size = int(await reader.readline(), 16)
                body += await reader.readexactly(size)
                await reader.readexactly(2)
                if not size:
                    return body
        return await reader.readexactly(int(headers.get("content-length", 0)))
