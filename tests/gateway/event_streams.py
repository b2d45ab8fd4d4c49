"""Reads event streams of gateways in tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Told:
    """One event as the stream has it; `data` is None for one that has only an id."""

    id: str = ""
    event: str = ""
    data: Any = None
    comments: list[str] = field(default_factory=list[str])

    @property
    def what(self) -> tuple[str, str]:
        return self.data["data"]["sandboxId"], self.event


class Stream:
    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self, *, any_kind: bool = False) -> Told:
        """The next event; with `any_kind` also what has only an id or a comment. Raises StopAsyncIteration."""
        while True:
            told = Told()
            while line := await anext(self._lines):
                name, _, value = line.partition(": ")
                if not name:
                    told.comments.append(value)
                elif name == "data":
                    told.data = json.loads(value)
                elif name != "retry":
                    setattr(told, name, value)
            if told.data is not None or any_kind:
                return told

    async def take(self, count: int) -> list[Told]:
        return [await self.next() for _ in range(count)]


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, **options: Any) -> AsyncIterator[Stream]:
    """A stream that is open: what happens from here on is in it."""
    async with client.stream("GET", "/api/v1/events", **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"] == "text/event-stream"
        yield Stream(answer.aiter_lines())
