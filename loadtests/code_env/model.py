"""A scripted model behind the OpenAI-compatible API, over real HTTP, that answers after a stated time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from loadtests.code_env.problems import answer, latency, number_of


class Model:
    """`mean` is the stated latency of a completion in seconds, `tests` the tests of a problem.

    `answered` is called with the problem's number after each completion.
    """

    def __init__(self, *, mean: float, tests: int) -> None:
        self.mean = mean
        self.tests = tests
        self.answered: Callable[[int], None] = lambda number: None
        self.url = ""
        self._open: set[asyncio.Task[None]] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while request := await _request(reader):
                writer.write(await self._answered(request))
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or `close` ends this: asyncio reports a cancelled handler as an error
        finally:
            self._open.discard(task)
            writer.close()

    async def _answered(self, request: dict[str, Any]) -> bytes:
        began = asyncio.get_running_loop().time()
        question = str(request["messages"][-1]["content"])
        text = answer(question, tests=self.tests)
        ready = began + latency(number_of(question), mean=self.mean)
        await asyncio.sleep(ready - asyncio.get_running_loop().time())
        self.answered(number_of(question))
        return _response(_completion(text, model=request["model"]))

    async def close(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


@asynccontextmanager
async def serving(model: Model) -> AsyncIterator[Model]:
    """Serve on a free port of this machine; `model.url` is what a client's base URL is."""
    server = await asyncio.start_server(model.connected, "127.0.0.1", 0, backlog=4096)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield model
    finally:
        server.close()
        await model.close()


async def _request(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next body; None if the client has closed the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    return json.loads(await reader.readexactly(int(fields[b"content-length"])))


def _completion(text: str, *, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _response(document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
