# This file is auto-generated from sdk/src/sandlot/_async/watch.py by tools/async_to_sync.py: do not change it.
"""Streams the events of a sandbox's directory, across dropped connections, with the gap told."""

from __future__ import annotations

import json
from collections import deque
from types import TracebackType
from typing import Any, cast

from sandlot._protocol import documents, frames
from sandlot._protocol.answers import error_for
from sandlot._protocol.file_requests import USER
from sandlot._protocol.messages import with_query
from sandlot._sync.plane import Plane
from sandlot._sync.reconnects import SILENCE, received
from sandlot._tasks_sync import ABANDONED
from sandlot._transport_sync.body import Body
from sandlot.errors import SandlotError, ServerError
from sandlot.file_records import FileEvent


class FileWatch:
    """Events of one directory, until it is closed: iterate over it, or over what `with` returns.

    Inside `with`, everything is seen that changes after it was entered.
    """

    _body: Body | None = None

    def __init__(self, *, plane: Plane, path: str, recursive: bool, user: USER) -> None:
        self.path = path
        self._plane = plane
        query = {"path": path, "recursive": 1 if recursive else 0, "user": user}
        self._route = with_query("/files/watch", query)
        self._retry = plane.client.retry(safe=True)
        self._decoder = frames.FrameDecoder()
        self._ready: deque[FileEvent] = deque()
        self._error: SandlotError | None = None
        self._finished = False
        self._lost = False

    def open(self) -> None:
        """Begin to watch; iteration and `with` do this by themselves. Raises FileError and SandboxLost."""
        if self._body is not None or self._finished:
            return
        self._decoder = frames.FrameDecoder()
        self._body = self._plane.open("GET", self._route, timeout=SILENCE, path=self.path, retry=self._retry)
        if self._lost:
            self._ready.append(FileEvent("overflow", self.path))
        self._lost = False

    def __enter__(self) -> FileWatch:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> FileWatch:
        return self

    def __next__(self) -> FileEvent:
        while not self._ready:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._finished:
                raise StopIteration
            try:
                self._read()
            except ABANDONED:
                self.close()
                raise
        return self._ready.popleft()

    def close(self) -> None:
        """Stop watching."""
        self._finished = True
        if self._body is not None:
            self._body.close()
            self._body = None

    def __del__(self) -> None:
        # Left early. The pool holds the connection, and while it is open the server watches.
        if self._body is not None:
            self._body.abandon()

    def _read(self) -> None:
        """Read once; connect again when the connection is lost."""
        self.open()
        body = self._body
        if body is None or self._ready:
            return
        data = received(body, self._retry, of="watch", lost=self._lose)
        if data is None:
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except (frames.FrameError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerError(f"the watch cannot be read: {error}") from error
        if self._decoder.ended:
            self.close()

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
