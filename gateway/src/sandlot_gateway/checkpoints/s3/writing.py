"""A checkpoint that this gateway writes into a bucket; it writes the document again and again, which shows that it is alive."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.errors import Deleted, StoreError, Trouble
from sandlot_gateway.checkpoints.packing import Known, Packing
from sandlot_gateway.checkpoints.rules import STOPPED
from sandlot_gateway.checkpoints.s3.archives import Sending
from sandlot_gateway.checkpoints.s3.bucket import Conflict
from sandlot_gateway.checkpoints.s3.records import Held, Record, Records
from sandlot_gateway.checkpoints.s3.times import RENEW_WITHIN

_log = logging.getLogger(__name__)

_TRIES = 3  # of a write, after earlier ones whose answers were lost
_PUBLISH_WITHIN = 60.0  # seconds of all tries
_PAUSE = 0.2  # seconds between two
_AT_ONCE = 16  # renewals: one that stalls delays no other


class S3Part:
    """`admit` is called with the number of bytes before each write, and may raise, `give_back` with those of them that are not
    stored; `known`: see Packing. `closed` is called when it ends.

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
        give_back: Callable[[int], None],
        known: Callable[[S3Part], Known],
        closed: Callable[[S3Part], None],
        renew_every: float,
    ) -> None:
        self.record = record
        self.size = 0
        self._etag = etag
        self._records = records
        self._sending = sending
        self._admit = admit
        self._give_back = give_back
        self._packing = Packing(record.archive, store=sending.write, known=lambda: known(self))
        self._closed = closed
        self._renew_every = renew_every
        self._renewed = time.monotonic()
        self._lock = threading.Lock()  # of the document: the renewing thread writes it too
        self._lost: Exception | None = None
        self._over = False  # the document says how it ended, or is somebody else's to change
        self._is_ending = False  # its state changes: only whoever changes it writes the document
        self._found_durable = False
        self._is_clean = False
        self._unused: list[Held] | None = None  # once it is complete

    @property
    def is_deleted(self) -> bool:
        return isinstance(self._lost, Deleted)

    @property
    def is_lost(self) -> bool:
        """Whether the document is not this writer's any more, so that nobody else knows what it has written."""
        return self._lost is not None

    def write(self, data: bytes) -> None:
        """Write a piece of the archive. Raises what `admit` raises, Deleted and StoreError."""
        self.check()
        self._admit(len(data))
        self.size += len(data)
        self._shrink(self._packing.write(data))
        self.renew()
        self.check()

    def _shrink(self, size: int) -> None:
        """Count `size` bytes no more, which earlier packs have."""
        self.size -= size
        if size:
            self._give_back(size)

    def publish(self, held: list[Held]) -> None:
        """Write into the document which packs of others the archive may lie in. Raises Deleted, StoreError."""
        until = time.monotonic() + _PUBLISH_WITHIN
        while True:
            with self._lock:  # not longer than a renewal has it: else the writer is taken for dead
                if self._lost is not None:
                    raise self._lost
                self.record.held = held
                try:
                    self._write(within=RENEW_WITHIN)
                    return
                except StoreError as error:
                    if error is self._lost or error.trouble is not Trouble.DOWN or time.monotonic() > until:
                        raise
            time.sleep(_PAUSE)

    def check(self) -> None:
        """Raise what has ended this writer."""
        with self._lock:
            if self._lost is not None:
                raise self._lost

    def renew(self, *, now: bool = False) -> None:
        """Write the document again if it is time, or `now`. A store that does not answer is asked again later."""
        with self._lock:
            if self._over or self._is_ending or self._lost is not None:
                return
            if not now and time.monotonic() - self._renewed < self._renew_every:
                return
            with contextlib.suppress(StoreError, Deleted):
                self._write(within=RENEW_WITHIN)

    def stop_renewing(self) -> None:
        """Let no renewal write the state that the caller is about to change."""
        with self._lock:
            self._is_ending = True

    def complete(self) -> list[Held]:
        """Let the pack appear; return which packs of others the archive does not lie in. Raises Deleted, StoreError.

        Raises what `admit` raises, too. A second call does nothing more.
        """
        if self._unused is not None:
            return self._unused
        self._shrink(self._packing.flush())
        manifest = self._packing.manifest()
        self._admit(len(manifest))
        self.size += len(manifest)
        self._sending.write(manifest)
        self.renew(now=True)
        self.check()
        self._sending.complete()
        used = self._packing.used()
        self._unused = [one for one in self.record.held if one.pack not in used]
        return self._unused

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
                if not self._over and self._lost is None and self.record.checkpoint.state is State.PENDING:
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

    def clean(self, delete: Callable[[], None]) -> None:
        """Let `delete` remove what a writer that has lost its document has written, once."""
        if not self._is_clean:
            delete()
            self._is_clean = True

    def _write(self, *, within: float | None = None) -> None:
        """Write the document. Raises Deleted, StoreError; the caller has the lock."""
        if self._found_durable:
            return
        ours = self.record.checkpoint
        self.record.written = self.size
        for _ in range(_TRIES):
            begun = time.monotonic()
            try:
                self._etag = self._records.write(self.record, over=self._etag, within=within)
            except Conflict:
                seen = self._records.read(ours.id, within=within, patient=True)
            else:
                self._renewed = begun
                return
            if seen is None or seen.record.deleted or seen.record.archive != self.record.archive:
                self._lost = Deleted(f"checkpoint {ours.id} was deleted while it was being written")
                raise self._lost
            if seen.checkpoint.state is State.DURABLE:
                self._found_durable = self._over = True
                return
            if seen.checkpoint.state is not State.PENDING:
                break
            # Of a write of ours, which came after we had given up waiting for its answer.
            self._etag = seen.etag
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
        self._renewing: set[S3Part] = set()

    def add(self, part: S3Part) -> None:
        with self._lock:
            self._parts.add(part)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="checkpoint-renewer", daemon=True)
        thread.start()
        self._thread = thread

    def remove(self, part: S3Part) -> None:
        with self._lock:
            self._parts.discard(part)
            self._changed.notify()

    def writes(self, archive: str) -> bool:
        """Return whether this process writes an archive."""
        with self._lock:
            return any(part.record.archive == archive for part in self._parts)

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
        try:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="checkpoint-renewal") as threads:
                while parts := self._next():
                    for part in parts:
                        try:
                            threads.submit(self._renew, part)
                        except RuntimeError as error:  # no more threads: the next round tries again
                            _log.warning("a checkpoint's writer cannot show that it is alive: %s", error)
                            self._renewed(part)
        finally:
            with self._lock:
                self._thread = None
                if self._parts:  # one was added meanwhile
                    self._start()

    def _next(self) -> list[S3Part]:
        """Return what to renew now; nothing once this process writes nothing."""
        with self._lock:
            while self._parts:
                self._changed.wait(self._every / 4)  # each part knows whether it is time
                if due := self._parts - self._renewing:
                    self._renewing |= due
                    return list(due)
            return []

    def _renew(self, part: S3Part) -> None:
        try:
            part.renew()
        except Exception:
            _log.exception("a checkpoint that is being written cannot show that its writer is alive")
        finally:
            self._renewed(part)

    def _renewed(self, part: S3Part) -> None:
        with self._lock:
            self._renewing.discard(part)
