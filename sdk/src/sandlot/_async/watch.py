"""Streams the events of a sandbox's directory, across dropped connections, with the gap told."""

from __future__ import annotations

import json
from typing import Any, cast

from sandlot._async.following import AsyncFollowing
from sandlot._async.plane import AsyncPlane
from sandlot._async.reconnects import SILENCE, received
from sandlot._protocol import documents, frames
from sandlot._protocol.answers import error_for
from sandlot._protocol.file_requests import USER
from sandlot._protocol.messages import with_query
from sandlot.errors import ServerError
from sandlot.file_records import FileEvent


class AsyncFileWatch(AsyncFollowing[FileEvent]):
    """Events of one directory, until it is closed: iterate over it, or over what `with` returns.

    Inside `with`, everything is seen that changes after it was entered.
    """

    def __init__(self, *, plane: AsyncPlane, path: str, recursive: bool, user: USER) -> None:
        super().__init__()
        self.path = path
        self._plane = plane
        query = {"path": path, "recursive": 1 if recursive else 0, "user": user}
        self._route = with_query("/files/watch", query)
        self._retry = plane.client.retry(safe=True)
        self._decoder = frames.FrameDecoder()
        self._lost = False

    async def open(self) -> None:
        """Begin to watch; iteration and `with` do this by themselves. Raises FileError and SandboxLost."""
        if self._body is not None or self._finished:
            return
        self._decoder = frames.FrameDecoder()
        self._body = await self._plane.open(
            "GET", self._route, timeout=SILENCE, path=self.path, retry=self._retry
        )
        if self._lost:
            self._ready.append(FileEvent("overflow", self.path))
        self._lost = False

    async def _read(self) -> None:
        """Read once; connect again when the connection is lost."""
        await self.open()
        body = self._body
        if body is None or self._ready:
            return
        data = await received(body, self._retry, of="watch", lost=self._lose)
        if data is None:
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except (frames.FrameError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerError(f"the watch cannot be read: {error}") from error
        if self._decoder.ended:
            await self.aclose()

    def _lose(self) -> None:
        self._body, self._lost = None, True

    def _take(self, frame: frames.Frame) -> None:
        if frame.type == frames.EVENTS:
            for event in cast(list[dict[str, Any]], json.loads(frame.payload)):
                path = event.get("path") or self.path
                self._ready.append(FileEvent(event["kind"], path, bool(event.get("dir")), event.get("from")))
        elif frame.type == frames.END:
            status = int(documents.parse(frame.payload).get("status") or 503)
            self._error = error_for(
                status=status,
                headers={},
                body=frame.payload,
                sandbox_id=self._plane.sandbox_id,
                path=self.path,
            )
