"""Streams the output of an op as events, across dropped connections, without a gap or a repeat."""

from __future__ import annotations

import codecs
from collections import deque
from types import TracebackType
from typing import Any

from sandlot._async.plane import AsyncPlane
from sandlot._async.reconnects import SILENCE, received
from sandlot._protocol import documents, frames
from sandlot._protocol.answers import end_error
from sandlot._protocol.messages import json_body, with_query
from sandlot._tasks_async import ABANDONED, shielded
from sandlot._transport_async.body import AsyncBody
from sandlot.errors import CommandFailed, ServerError
from sandlot.models import Event, Exit, Stderr, Stdout


class AsyncOpStream:
    """Events of one op: `Stdout` and `Stderr` chunks, then one `Exit`.

    `offset` is the end of the events so far; `Sandbox.attach(op_id, offset=…)` resumes there, also in another
    process. If the iteration stops early, the server ends the op after a while; `aclose` ends it at once.
    """

    _body: AsyncBody | None = None

    def __init__(
        self,
        *,
        plane: AsyncPlane,
        op_id: str,
        document: dict[str, Any] | None,
        offset: int = 0,
        check: bool = False,
        keep: bool = False,
    ) -> None:
        self.op_id = op_id
        self.pid: int | None = None
        self.exit: Exit | None = None
        self._plane = plane
        self._document = document
        self._check = check
        self._keep = keep
        self._decoder = frames.FrameDecoder(offset=offset)
        self._retry = plane.client.retry(safe=True)
        self._ready: deque[Event] = deque()
        self._texts = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in (b"o", b"e")}
        self._finished = False

    @property
    def offset(self) -> int:
        return self._decoder.offset

    def has_read(self, offset: int) -> bool:
        """Return whether all events before `offset` have been returned."""
        return not self._ready and self._decoder.offset >= offset

    async def open(self) -> None:
        """Start or find the op; iteration does this by itself."""
        if self._body is not None or self._finished:
            return
        try:
            self._decoder.restart()
            offset = self._decoder.offset
            if self._document is None:
                route = with_query(f"/ops/{self.op_id}/stream", {"offset": offset})
                self._body = await self._plane.open("GET", route, timeout=SILENCE, retry=self._retry)
            else:
                route = with_query("/ops", {"offset": offset or None})
                body = json_body(self._document)
                self._body = await self._plane.open(
                    "POST", route, body=body, timeout=SILENCE, retry=self._retry
                )
        except ABANDONED:
            await self._abandon()
            raise

    def __aiter__(self) -> AsyncOpStream:
        return self

    async def __anext__(self) -> Event:
        while True:
            event = await self.next_event()
            if event is not None:
                return event

    async def next_event(self) -> Event | None:
        """Return the next event, or None if the next read completed none: the server sends something every 15 s."""
        if not self._ready:
            if self._finished:
                raise StopAsyncIteration
            try:
                await self._read()
            except ABANDONED:
                await self._abandon()
                raise
            if not self._ready:
                return None
        event = self._ready.popleft()
        if isinstance(event, Exit):
            error = end_error(event, sandbox_id=self._plane.sandbox_id)
            if error is not None:
                raise error
            if self._check and not event.ok:
                raise CommandFailed(documents.result_from_exit(event, stdout=b"", stderr=b""))
        return event

    async def __aenter__(self) -> AsyncOpStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop streaming; end the op if it still runs and was not started detached."""
        was_running = not self._finished
        await self.stop()
        if was_running and not self._keep:
            await shielded(lambda: self._plane.kill(self.op_id))

    def __del__(self) -> None:
        # Left early. The pool holds the connection, and while it is open the server counts the op as followed.
        if self._body is not None:
            self._body.abandon()

    async def stop(self) -> None:
        """Stop streaming and leave the op running."""
        self._finished = True
        if self._body is not None:
            await self._body.aclose()
            self._body = None

    async def _abandon(self) -> None:
        if not self._keep:
            await shielded(lambda: self._plane.kill(self.op_id))
        await self.stop()

    async def _read(self) -> None:
        """Read until there is an event; reconnect when the connection is lost."""
        await self.open()
        body = self._body
        if body is None:
            return
        data = await received(body, self._retry, of="command", lost=self._lose)
        if data is None:
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except frames.FrameError as error:
            raise ServerError(f"the stream cannot be read: {error}") from error
        if self._decoder.ended:
            self._finished = True
            await body.aclose()
            self._body = None

    def _lose(self) -> None:
        self._body = None

    def _take(self, frame: frames.Frame) -> None:
        if frame.type == frames.STDOUT:
            self._ready.append(Stdout(frame.payload, self._texts[b"o"].decode(frame.payload)))
        elif frame.type == frames.STDERR:
            self._ready.append(Stderr(frame.payload, self._texts[b"e"].decode(frame.payload)))
        elif frame.type == frames.START:
            self.pid = documents.parse(frame.payload).get("pid")
        elif frame.type == frames.END:
            for kind, make in ((b"o", Stdout), (b"e", Stderr)):
                rest = self._texts[kind].decode(b"", final=True)
                if rest:
                    self._ready.append(make(b"", rest))
            self.exit = documents.exit_event(documents.parse(frame.payload), op_id=self.op_id)
            self._ready.append(self.exit)
