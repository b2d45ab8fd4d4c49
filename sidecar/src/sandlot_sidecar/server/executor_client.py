"""Client of the executor's control socket: numbered requests, responses with descriptors, events."""

from __future__ import annotations

import asyncio

from ..core.errors import ApiError, SidecarError, busy
from ..executor import wire
from .sendqueue import SendQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

STATUS = {
    "not_found": 404, "exists": 409, "not_empty": 409, "is_directory": 409, "not_a_directory": 409,
    "permission": 403, "too_large": 413, "disk_full": 507, "refused": 502, "no_overlay": 409, "bad_request": 400, "bad_path": 400,
    "conflict": 409, "unsupported": 409, "unreadable": 409,
}  # fmt: skip
# Limit on pending requests. Beyond it those of callers are rejected, as code can keep the executor busy; the
# sidecar's own are few, and an upload must still be able to end.
MOST_WAITING = 1024
CALLERS = frozenset(("file", "connect"))
ENDS_UPLOAD = frozenset(("commit", "abort"))


class ExecutorGone(SidecarError):
    """The executor has ended; nothing can run in the sandbox any more."""


class ExecutorError(ApiError):
    """The executor rejected a request; carries the contract's HTTP status for its code."""


class ExecutorClient:
    """Sends requests and delivers their responses, all in the event loop's thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = wire.Decoder()
        self._seq = 0
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: SendQueue | None = None
        self.gone = False
        self.on_event: Callable[[dict[str, Any]], None] = lambda message: None
        self.on_gone: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to read responses."""
        self._loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        self._queue = SendQueue(self._sock, loop=self._loop, on_broken=self._lost)
        self._loop.add_reader(self._sock.fileno(), self._readable)

    def close(self) -> None:
        """Close the socket, upon which the executor kills everything and exits."""
        self._stop()
        self._sock.close()
        self._decoder.close()
        self._lost()

    def _readable(self) -> None:
        try:
            messages = self._decoder.receive(self._sock)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, wire.WireError):
            messages = None
        if messages is None:
            self._stop()
            self._lost()
            return
        for message, fds in messages:
            waiter = self._waiting.pop(message.get("seq", 0), None)
            if waiter is None:
                wire.close_all(fds)
                if "event" in message:
                    self.on_event(message)
            elif waiter.done():
                wire.close_all(fds)
            else:
                waiter.set_result((message, fds))

    def _stop(self) -> None:
        if self._queue is not None:
            self._queue.close()
        if self._loop is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._loop = None

    def _lost(self) -> None:
        if self.gone:
            return
        self.gone = True
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(ExecutorGone("the executor has ended"))
        self.on_gone()

    async def ask(
        self, do: str, *, descriptors: int | None = 0, attached: list[int] | None = None, **arguments: Any
    ) -> tuple[dict[str, Any], list[int]]:
        """Send a request; return its response and exactly `descriptors` descriptors (None: all), which the caller owns.

        The descriptors `attached` go with the request; the caller keeps them.

        Raises ExecutorError (rejected), ExecutorGone, or a 503 if too many requests are pending.
        """
        if self.gone or self._queue is None:
            raise ExecutorGone("the executor has ended")
        if len(self._waiting) >= MOST_WAITING and do in CALLERS and arguments.get("op") not in ENDS_UPLOAD:
            raise busy(
                f"{len(self._waiting)} requests to the sandbox are pending: try again after Retry-After"
            )
        self._seq += 1
        message = {"seq": self._seq, "do": do, **arguments}
        data = wire.control({**message, "fds": len(attached)} if attached else message)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[self._seq] = waiter
        try:
            self._queue.send(data, attached or ())
        except OSError as error:
            self._waiting.pop(self._seq, None)
            raise ExecutorGone("the executor has ended") from error
        try:
            answer, fds = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                wire.close_all(waiter.result()[1])
            raise
        if "error" in answer or descriptors not in (None, len(fds)):
            wire.close_all(fds)
            code = str(answer.get("error", "internal"))
            message = str(
                answer.get("message", "the executor's response has the wrong number of descriptors")
            )
            raise ExecutorError(STATUS.get(code, 503), code, message, field=answer.get("field"))
        return answer, fds
