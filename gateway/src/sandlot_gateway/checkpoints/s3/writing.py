"""A checkpoint that this gateway writes into a bucket; it writes the document again and again, which shows that it is alive."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Deleted, StoreError
from sandlot_gateway.checkpoints.rules import STOPPED
from sandlot_gateway.checkpoints.s3.archives import Sending
from sandlot_gateway.checkpoints.s3.bucket import Conflict
from sandlot_gateway.checkpoints.s3.records import Record, Records

_TRIES = 3  # of a write, after earlier ones whose answers were lost


class S3Part:
    """`admit` is called with the number of bytes before each write, and may raise; `closed` when it ends.

    The document has its state from here alone, until another gateway takes the writer for dead.
    """

    def __init__(
        self,
        record: Record,
        *,
        etag: str,
        records: Records,
        sending: Sending,
        admit: Callable[[int], None],
        closed: Callable[[S3Part], None],
        renew_every: float,
    ) -> None:
        self.record = record
        self.size = 0
        self._etag = etag
        self._records = records
        self._sending = sending
        self._admit = admit
        self._closed = closed
        self._renew_every = renew_every
        self._renewed = time.monotonic()
        self._lock = threading.Lock()  # of the document: the renewing thread writes it too
        self._lost: Exception | None = None
        self._over = False  # the document says how it ended, or is somebody else's to change
        self._found_durable = False

    @property
    def is_deleted(self) -> bool:
        return isinstance(self._lost, Deleted)

    def write(self, data: bytes) -> None:
        """Write a piece. Raises what `admit` raises, Deleted and StoreError."""
        self.check()
        self._admit(len(data))
        self.size += len(data)
        self._sending.write(data)
        self.renew()
        self.check()

    def check(self) -> None:
        """Raise what has ended this writer."""
        with self._lock:
            if self._lost is not None:
                raise self._lost

    def renew(self, *, now: bool = False) -> None:
        """Write the document again if it is time, or `now`. A store that does not answer is asked again later."""
        with self._lock:
            if self._over or (not now and time.monotonic() - self._renewed < self._renew_every):
                return
            with contextlib.suppress(StoreError, Deleted):
                self._write()

    def complete(self) -> None:
        """Let the archive appear. Raises Deleted, StoreError."""
        self.renew(now=True)
        self.check()
        self._sending.complete()

    def settle(self) -> bool:
        """Write the document with the final state of its checkpoint. Raises Deleted, StoreError.

        Returns False if it is DURABLE already: a reader that found the archive complete was faster.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._write()
            self._over = True
            return not self._found_durable

    def close(self) -> None:
        with self._lock:
            self._over = True
        self._closed(self)

    def discard(self) -> None:
        """Delete what is written; the checkpoint is FAILED if its document does not say how it ended."""
        try:
            with self._lock:
                if not self._over and self._lost is None:
                    checkpoint = self.record.checkpoint
                    checkpoint.state, checkpoint.error, checkpoint.updated_at = (
                        State.FAILED,
                        STOPPED,
                        time.time(),
                    )
                    with contextlib.suppress(Deleted):
                        self._write()
        finally:
            self.close()  # else its document would never be that of a dead writer
        self._sending.abort()

    def _write(self) -> None:
        """Write the document. Raises Deleted, StoreError; the caller has the lock."""
        if self._found_durable:
            return
        ours = self.record.checkpoint
        self.record.written = self.size
        for _ in range(_TRIES):
            try:
                self._etag = self._records.write(self.record, over=self._etag)
            except Conflict:
                seen = self._records.read(ours.id)
            else:
                self._renewed = time.monotonic()
                return
            if seen is None or seen.record.deleted or seen.record.archive != self.record.archive:
                self._lost = Deleted(f"checkpoint {ours.id} was deleted while it was being written")
                raise self._lost
            if seen.checkpoint.state is State.DURABLE:
                self._found_durable = self._over = True
                return
            if seen.checkpoint.state is not State.PENDING:
                break
            self._etag = (
                seen.etag
            )  # of a write of ours, which came after we had given up waiting for its answer
        self._lost = StoreError(
            "another gateway took this one for dead: it had not written to the store for too long"
        )
        raise self._lost


class Renewer:
    """Renews all that this process writes, in a thread while there is something; the archive may be long in coming."""

    def __init__(self, *, every: float) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._parts: set[S3Part] = set()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def add(self, part: S3Part) -> None:
        with self._lock:
            self._parts.add(part)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoint-renewer", daemon=True)
                self._thread.start()

    def remove(self, part: S3Part) -> None:
        with self._lock:
            self._parts.discard(part)
            self._changed.notify()

    def sizes(self) -> dict[str, int]:
        """Return how many bytes this process has written, by archive."""
        with self._lock:
            return {part.record.archive: part.size for part in self._parts}

    def of(self, checkpoint: Checkpoint) -> S3Part | None:
        with self._lock:
            for part in self._parts:
                ours = part.record.checkpoint
                if (ours.id, ours.created_at) == (checkpoint.id, checkpoint.created_at):
                    return part
        return None

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._parts:
                    self._changed.wait(self._every)
                if not self._parts:
                    self._thread = None
                    return
                parts = list(self._parts)
            for part in parts:
                part.renew()
