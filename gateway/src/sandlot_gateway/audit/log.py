"""Collects audit records and writes them in a thread, so that no call waits for a disk; memory is bounded."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sandlot_gateway.audit.file import Sink

_log = logging.getLogger(__name__)

_DELAY = 0.1  # seconds from a record to its write: a write for each would cost more than the record
_RETRY = 1.0  # seconds after a write that failed
_MOST = 8 << 20  # bytes of records that wait


class Counted(Protocol):
    def audit_written(self, records: int) -> None: ...

    def audit_lost(self, records: int) -> None: ...

    def audit_write_failed(self) -> None: ...


class AuditLog:
    """Appends records to a sink, in order. While it cannot be written they wait, and those beyond the bound are lost."""

    def __init__(self, sink: Sink, *, where: str, counted: Counted) -> None:
        self._sink = sink
        self._where = where
        self._counted = counted
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._waiting: list[bytes] = []
        self._size = 0  # bytes that wait or are being written
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_failing = False

    def open(self) -> None:
        """Open the sink. Raises OSError if it cannot be written."""
        try:
            self._sink.open()
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot open the audit log {self._where}: {error.strerror}; "
                "give --audit-log a file in a directory that exists and that the gateway may write",
            ) from error

    def add(self, line: bytes) -> None:
        """Write a record soon; `line` ends with its only newline."""
        if self._size + len(line) > _MOST:
            self._counted.audit_lost(1)
            return
        self._waiting.append(line)
        self._size += len(line)
        if self._timer is None and self._writing is None:
            self._write_in(_DELAY)

    async def close(self, *, timeout: float) -> None:
        """Write what waits, within `timeout` seconds. One that was cancelled may come again."""
        self._no_timer()
        try:
            async with asyncio.timeout(timeout):
                if self._writing is not None:
                    await asyncio.wait([self._writing])
                if self._waiting:
                    self._begin()
                    await asyncio.wait([self._writing] if self._writing is not None else [])
        except TimeoutError:
            pass
        self._no_timer()
        if self._writing is not None:
            # The thread may use the sink as long as the system call takes.
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        else:
            self._sink.close()
        if self._size:
            text = "the gateway ends with %d bytes of records that the audit log %s does not take"
            _log.error(text, self._size, self._where)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._no_timer()
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        data = b"".join(self._waiting)
        self._waiting = []
        loop = asyncio.get_running_loop()
        done, error = await loop.run_in_executor(self._thread, _written, self._sink, data)
        self._size -= done
        self._counted.audit_written(data.count(b"\n", 0, done))
        if done < len(data):
            self._waiting.insert(0, data[done:])
        self._tell(error)
        self._writing = None
        if self._waiting:
            self._write_in(_RETRY if error is not None else _DELAY)

    def _tell(self, error: OSError | None) -> None:
        if error is not None:
            self._counted.audit_write_failed()
            if not self._is_failing:
                text = "cannot write the audit log %s: %s; records wait, up to %d bytes, then they are lost"
                _log.error(text, self._where, error.strerror or error, _MOST)
        elif self._is_failing:
            _log.warning("the audit log %s can be written again", self._where)
        self._is_failing = error is not None


def _written(sink: Sink, data: bytes) -> tuple[int, OSError | None]:
    done = 0
    rest = memoryview(data)
    try:
        while done < len(data):
            done += sink.write(rest[done:])
    except OSError as error:
        return done, error
    return done, None
