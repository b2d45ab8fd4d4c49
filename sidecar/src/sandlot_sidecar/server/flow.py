"""Flow control and ends of one connection: named reasons pause reading, and writing waits for a slow client."""

from __future__ import annotations

import asyncio
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .request import Request


class Flow(asyncio.Protocol):
    """Base of a connection; passes flow-control events to its tunnel, if any."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.paused_writing = False
        self.tunnel: Any = None
        self.closing = False
        self._requests: deque[Request] = deque()  # the first is being handled
        self._drain: asyncio.Future[None] | None = None
        self._pauses: set[str] = set()

    def pause_writing(self) -> None:
        self.paused_writing = True
        if self.tunnel is not None:
            self.tunnel.outer_paused()

    def resume_writing(self) -> None:
        self.paused_writing = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        if self.tunnel is not None:
            self.tunnel.outer_resumed()

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self.paused_writing:
            if self._drain is None or self._drain.done():
                self._drain = asyncio.get_running_loop().create_future()
            await self._drain

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes to the transport."""
        if not self.closing:
            self.transport.write(data)

    def pause(self, why: str) -> None:
        """Pause reading for a reason; reading resumes once all reasons are gone."""
        if not self._pauses and not self.closing:
            self.transport.pause_reading()
        self._pauses.add(why)

    def resume(self, why: str) -> None:
        """Remove a reason to pause."""
        if why in self._pauses:
            self._pauses.discard(why)
            if not self._pauses and not self.closing and not self.transport.is_closing():
                self.transport.resume_reading()

    def close(self) -> None:
        """Close after all written bytes are sent."""
        if not self.closing:
            self.closing = True
            self.transport.close()

    def abort(self) -> None:
        """Cut the connection, so that the client sees an incomplete response."""
        self.closing = True
        self.transport.abort()

    def close_when_idle(self) -> None:
        """Close now, or after the response in progress."""
        if not self._requests:
            self.close()
        for request in self._requests:
            request.keep_alive = False

    def end_use(self) -> None:
        """Cut the connection during a tunnel, or a request that acts on the sandbox and is unfinished."""
        if self.tunnel is not None:
            self.abort()
        # Claims and resets are shielded. A request behind the first has no route: it has not been admitted yet.
        acting = [each for each in self._requests if each.route is not None and not each.route.shielded]
        for each in acting:
            if each.task is not None:
                each.task.cancel()  # not `abort`, which asyncio cannot do during a sendfile; it follows
            elif not each.answered:
                self.abort()
