"""A watch of a sandbox's directory for tests: its events as they come."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.sidecar.support import Sidecar
from tests.waiting import SECONDS


class Watch:
    """Reads the frames of one watch."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._data = b""
        self.start: dict[str, Any] = {}
        self.seen: list[dict[str, Any]] = []

    async def frame(self) -> tuple[str, Any]:
        """The next frame that is no keep-alive, with its document."""
        async with asyncio.timeout(SECONDS):
            while True:
                length = int.from_bytes(self._data[1:5], "big")
                if len(self._data) >= 5 + length and self._data:
                    kind, payload = chr(self._data[0]), self._data[5 : 5 + length]
                    self._data = self._data[5 + length :]
                    if kind != "k":
                        return kind, json.loads(payload)
                else:
                    self._data += await anext(self._pieces)

    async def until(self, *wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """Read until all of these have come, each with at least these fields; return all events since the last call."""
        missing = list(wanted)
        begun = len(self.seen)
        while missing:
            events = await self._more()
            missing = [one for one in missing if not any(one.items() <= event.items() for event in events)]
        return self.seen[begun:]

    async def one_of(self, *wanted: dict[str, Any]) -> dict[str, Any]:
        """Read until one of these has come; return the last of them."""
        found: list[dict[str, Any]] = []
        while not found:
            events = await self._more()
            found = [event for event in events if any(one.items() <= event.items() for one in wanted)]
        return found[-1]

    async def _more(self) -> list[dict[str, Any]]:
        kind, events = await self.frame()
        assert kind == "w", (kind, events, self.seen)
        self.seen += events
        return events


@contextlib.asynccontextmanager
async def watching(box: Sidecar, path: str, **query: str) -> AsyncIterator[Watch]:
    """Watch a directory; begins once the watch is in force."""
    async with box.stream("GET", "/v1/files/watch", params={"path": path, **query}) as answer:
        if answer.status_code != 200:
            raise AssertionError((await answer.aread()).decode())
        watch = Watch(answer.aiter_raw())
        kind, watch.start = await watch.frame()
        assert kind == "s"
        yield watch


def told(events: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Kind and path of each event, and from where."""
    return [
        (event["kind"], event.get("path", ""), *([event["from"]] if "from" in event else []))
        for event in events
    ]
