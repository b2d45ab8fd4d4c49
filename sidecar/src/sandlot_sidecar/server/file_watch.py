"""One watch of a client's: sends what changes in a directory until the client leaves or the sandbox ends."""

from __future__ import annotations

import asyncio
import json
import os

from sandlot_contract.frames import CONTENT_TYPE, END, EVENTS, KEEP_ALIVE, START, frame

from ..core.errors import ApiError, ClientGone
from ..core.watched import Watched
from ..executor.file_watch import KERNEL_FULL, MOST_LOOKED_AT
from .executor_client import ExecutorGone
from .inotify import Inotify
from .stream import SILENCE
from .watch_events import OVERFLOW, Events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.watched import Directory
    from .instance import Instance
    from .request import Answer, Request
    from .watch_events import Event
    from .watch_room import Room

MESSAGE = 64 << 10  # bytes of the kernel's events that are one message
MOST_TEXT = 256 << 10  # bytes of paths in one message, since code chooses their lengths
QUEUED = 1 << 20  # bytes of unread events, beyond which they are dropped: gVisor has no limit of its own
SHORTEST = 0.02  # seconds from one read to the next: what happens meanwhile is one message
SHARE = 9  # rests so many times as long as the events took, so that a flood costs a tenth of a core
LONGEST = 5.0  # seconds of such a rest, since on a loaded machine the time is not the watch's own
MOVE_PATIENCE = 0.05  # seconds for the new place of what has moved away
ANEW_AFTER = 1.0  # seconds before the directories are watched anew: code can cause it as often as it likes
BUSY_PATIENCE = 30.0  # seconds of 503s before the client is told: a node may have no inotify instance left
LOST_PATIENCE = 5.0  # seconds from the executor's end to the sandbox's


_BEYOND = {
    "directories": "more than {most} directories to watch: watch one that has fewer below it, or end a watch",
    "entries": f"more than {MOST_LOOKED_AT:,} entries below it to look at for directories: watch one that has fewer",
    "kernel": KERNEL_FULL,
}


class FileWatch:
    """Watches with the rights of one user; `room` limits the directories of all watches."""

    def __init__(
        self, instance: Instance, room: Room, *, path: str, recursive: bool, acting: dict[str, Any]
    ) -> None:
        self._instance = instance
        self._room = room
        self._path = path
        self._recursive = recursive
        self._acting = acting
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._inotify: Inotify | None = None
        self._events = Events(Watched(path), recursive=recursive)
        self._rest = 0.0
        self._opening = 0.0  # seconds that it took
        self._busy_since: float | None = None

    @property
    def directories(self) -> int:
        """How many are watched."""
        return len(self._events.watched) if self._inotify is not None else 0

    def stop(self) -> None:
        """End the watch: the sandbox ends, or is reset."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def close(self) -> None:
        """Release the kernel's part."""
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    async def open(self) -> None:
        """Watch the directory, and with `recursive` those below; nothing if stopped. Raises ApiError and ExecutorGone."""
        began = self._loop.time()
        async with self._room.lock:
            if self._stopped.done():  # while it waited: what is there now belongs to another claim
                return
            most = self._room.left()
            answer, (fd,) = await self._instance.executor.ask(
                "file", descriptors=1, op="watch", path=self._path, recursive=self._recursive, most=most,
                **self._acting,
            )  # fmt: skip
            if answer["beyond"]:
                os.close(fd)
                raise ApiError(413, "too_large", _BEYOND[answer["beyond"]].format(most=most), field="path")
            watched = Watched(answer["path"])
            at: list[Directory] = []
            for number, parent, name in answer["found"]:
                at.append(watched.add(number, name, at[parent] if parent >= 0 else None))
            self._events = Events(watched, recursive=self._recursive)
            self._inotify = Inotify(fd)
        self._opening = self._loop.time() - began

    async def run(self, request: Request) -> None:
        """Send events until the watch ends. Raises ClientGone."""
        answer = request.start(kind=CONTENT_TYPE)
        if not self._stopped.done():
            start = {"path": self._events.watched.path, "directories": self.directories}
            await answer.write(_frame(START, start))
        quiet_since = self._loop.time()
        while not self._stopped.done():
            try:
                found = await self._next() if self._inotify is not None else await self._anew()
            except ExecutorGone:
                await asyncio.wait([self._stopped], timeout=LOST_PATIENCE)
                break
            except ApiError as error:
                answer.finish(_frame(END, {"status": error.status, **error.body()}))
                return
            if found:
                await self._send(answer, _frame(EVENTS, found))
                quiet_since = self._loop.time()
            elif self._loop.time() - quiet_since >= SILENCE:
                await self._send(answer, frame(KEEP_ALIVE, b""))
                quiet_since = self._loop.time()
        if not self._instance.life.over:
            request.connection.abort()  # a reset: the client watches anew what there is now
            raise ClientGone("the sandbox was reset")
        record = self._instance.record
        end = {"status": 410, "error": "ended", "verdict": record.verdict, "message": record.message}
        answer.finish(_frame(END, end))

    async def _next(self) -> list[Event]:
        """Return the events of one read; none after a time without any."""
        inotify, events = self._inotify, self._events
        assert inotify is not None
        await self._pause(self._rest)
        await inotify.readable(self._stopped, timeout=MOVE_PATIENCE if events.waits else SILENCE)
        if self._stopped.done():
            return []
        began = self._loop.time()
        found, queued = self._read(inotify)
        self._forget(inotify)
        if not events.lost and (new := events.new_directories()):
            found += await self._watch_new(inotify, new)
            self._forget(inotify)
        if events.lost or queued > QUEUED:
            self.close()
        self._rest = min(LONGEST, max(SHORTEST, SHARE * (self._loop.time() - began)))
        return found

    def _read(self, inotify: Inotify) -> tuple[list[Event], int]:
        """Return the events of one message, and the bytes that the kernel still has."""
        events, found, taken = self._events, [], 0
        while True:
            data = inotify.read()
            queued = inotify.queued()
            found += events.take(data, last=not queued, first=not taken)
            taken += len(data)
            if not queued or events.lost or taken >= MESSAGE or events.size > MOST_TEXT:
                return found, queued

    def _forget(self, inotify: Inotify) -> None:
        """End stale watches; before new ones, since a directory that has another name by now has the same number."""
        inotify.forget(self._events.stale)
        self._events.stale.clear()

    async def _watch_new(self, inotify: Inotify, new: list[str]) -> list[Event]:
        events = self._events
        try:
            async with self._room.lock:
                if self._stopped.done():
                    return []
                answer, _ = await self._instance.executor.ask(
                    "file", attached=[inotify.fd], op="watch", path=events.watched.path, more=new, recursive=True,
                    most=self._room.left(), **self._acting,
                )  # fmt: skip
        except ApiError:  # its process was killed, or the user is no more: `open` says so
            events.lost = True
            return []
        return events.added(answer)

    async def _anew(self) -> list[Event]:
        """Watch again after events were lost, then say so: a client that lists the directory now misses nothing."""
        await self._pause(min(LONGEST, max(ANEW_AFTER, SHARE * self._opening)))
        if self._stopped.done():
            return []
        try:
            await self.open()
        except ApiError as error:
            now = self._loop.time()
            self._busy_since = now if self._busy_since is None else self._busy_since
            if error.status != 503 or now - self._busy_since >= BUSY_PATIENCE:
                raise
            return []
        self._busy_since = None
        self._rest = SHORTEST
        return [OVERFLOW] if self._inotify is not None else []

    async def _pause(self, seconds: float) -> None:
        await asyncio.wait([self._stopped], timeout=seconds)

    async def _send(self, answer: Answer, data: bytes) -> None:
        """Send, and drop events while the client reads slower than they come. Raises ClientGone."""
        writing = self._loop.create_task(answer.write(data))
        try:
            while not writing.done():
                await asyncio.wait(
                    [writing, self._stopped], timeout=ANEW_AFTER, return_when=asyncio.FIRST_COMPLETED
                )
                if self._stopped.done():
                    return
                if self._inotify is not None and self._inotify.queued() > QUEUED:
                    self.close()
            writing.result()
        finally:
            if not writing.cancel() and not writing.cancelled():
                writing.exception()  # else the loop reports it as never retrieved


def _frame(kind: int, document: object) -> bytes:
    return frame(kind, json.dumps(document, separators=(",", ":")).encode())
