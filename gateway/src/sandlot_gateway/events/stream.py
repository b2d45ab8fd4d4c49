"""Sends a tenant's events as server-sent events, at the speed of the client, from the memory that all readers share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from fastapi import Response

from sandlot_gateway.data.answers import Receive, Scope, Send
from sandlot_gateway.data.disconnects import wait_for_disconnect
from sandlot_gateway.metrics import StreamEnd

from .cursor import Cursor
from .event import EventFilter
from .journal import Journal
from .tenant import CursorExpired, Entry, TenantEvents

_log = logging.getLogger(__name__)

HEARTBEAT = 15.0  # seconds
STALLED = 60.0  # seconds in which a client takes nothing of what it was sent, until its connection is cut
_GATHER = 0.01  # seconds in which events go into one write
_MOST = 500  # events that are looked at for one write
_MOST_BYTES = 64 << 10  # of one write


@dataclass(slots=True)
class StreamCounts:
    """How many streams are open, by tenant, and how those ended that are not, by reason."""

    ended: Callable[[StreamEnd], None]
    open: Counter[str] = field(default_factory=Counter[str])


class EventStream(Response):
    """One stream. A client that reads too slowly holds no memory: its place is one that is not kept any more, which is
    the last that it is told.
    """

    def __init__(
        self,
        events: TenantEvents,
        *,
        tenant: str,
        journal: Journal,
        number: int,
        wanted: EventFilter,
        is_allowed: Callable[[], bool],
        follow: bool,
        counts: StreamCounts,
    ) -> None:
        """Begin with event `number`; `is_allowed` returns whether the key is still one of this tenant.

        `follow`: go on with what comes; else the stream ends with what is kept.
        """
        super().__init__()
        self._events = events
        self._tenant = tenant
        self._journal = journal
        self._number = number
        self._wanted = wanted
        self._is_allowed = is_allowed
        self._follow = follow
        self._counts = counts
        self._woken = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason: StreamEnd = "left"
        self._counts.open[self._tenant] += 1
        self._events.readers.add(self._woken)
        leaving = asyncio.create_task(wait_for_disconnect(receive))
        leaving.add_done_callback(lambda _: self._woken.set())
        try:
            async with asyncio.timeout(None) as stalled:
                reason = await self._run(_Writer(send, stalled), leaving)
        except TimeoutError:
            reason = "stalled"  # without the response's end, which cuts the connection
            _log.info("a client does not read its events: its stream was cut", extra={"tenant": self._tenant})
        finally:
            self._events.readers.discard(self._woken)
            self._counts.open[self._tenant] -= 1
            self._counts.ended(reason)
            leaving.cancel()
            await asyncio.wait({leaving})

    async def _run(self, writer: _Writer, leaving: asyncio.Task[None]) -> StreamEnd:
        """Send until there is a reason to end, and return that."""
        await writer.begin()
        await writer.write(b"retry: 1000\n" + self._place())
        while not leaving.done():
            self._woken.clear()
            if self._journal.closed:
                await writer.end(b": the gateway is leaving: connect again with the last id\n\n")
                return "leaving"
            if not self._is_allowed():
                await writer.end(b": this API key is not valid any more\n\n")
                return "key_withdrawn"
            try:
                batch = self._events.read(
                    self._number, wanted=self._wanted, most=_MOST, most_bytes=_MOST_BYTES
                )
            except CursorExpired as error:
                await writer.end(_expired(error.resume))
                return "expired"
            self._number = batch.next
            if batch.entries:
                await writer.write(b"".join(self._frame(number, entry) for number, entry in batch.entries))
            elif asyncio.get_running_loop().time() >= writer.written + HEARTBEAT:
                # Also while events come, of which the filter takes none.
                await writer.write(b": heartbeat\n" + self._place())
            if self._number < self._events.end:
                await asyncio.sleep(0)  # a filter that takes nothing must not hold the loop
                continue
            if not self._follow:
                await writer.end(self._place())
                return "complete"
            await self._wait(until=writer.written + HEARTBEAT)
        return "left"

    async def _wait(self, *, until: float) -> None:
        """Wait for more, at most until this time of the loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._woken.wait()
                await asyncio.sleep(_GATHER)

    def _place(self) -> bytes:
        """Return the cursor without an event: also one who wants few of them has a recent place to go on from."""
        return b"id: %b\n\n" % str(self._events.cursor(self._number, now=self._journal.now())).encode()

    def _frame(self, number: int, entry: Entry) -> bytes:
        cursor = Cursor(self._journal.id, number, entry.at)
        event = entry.event
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (
            str(cursor).encode(),
            event.document.type.encode(),
            event.text,
        )


class _Writer:
    """Writes the response; a write that takes longer than STALLED raises TimeoutError."""

    def __init__(self, send: Send, stalled: asyncio.Timeout) -> None:
        self._send = send
        self._stalled = stalled
        self.written = 0.0  # when it last wrote, on the loop's clock

    async def begin(self) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # else nginx would hold events back
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, body: bytes, *, more: bool = True) -> None:
        self._stalled.reschedule(asyncio.get_running_loop().time() + STALLED)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
        self._stalled.reschedule(None)
        self.written = asyncio.get_running_loop().time()

    async def end(self, body: bytes) -> None:
        await self.write(body, more=False)


def _expired(resume: Cursor) -> bytes:
    text = "this client read more slowly than events came, and some are not kept any more: list the sandboxes, and"
    document = {"message": f"{text} resume from `resume`", "resume": str(resume)}
    return b"event: expired\ndata: %b\n\n" % msgspec.json.encode(document)
