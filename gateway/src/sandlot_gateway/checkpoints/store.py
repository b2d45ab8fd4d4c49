"""Stores checkpoints in one directory, a JSON document and a directory of files each, for all gateways that mount it.

Nothing is cached. A checkpoint that is being written has a locked file `part`; without the lock, its gateway is dead.
A document with the suffix `.deleted` is of a deleted checkpoint whose files are still there.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.deletions import Deletions
from sandlot_gateway.checkpoints.documents import Documents, is_same, names, read
from sandlot_gateway.checkpoints.errors import Deleted, Occupied
from sandlot_gateway.checkpoints.interface import OpenArchive, Writing
from sandlot_gateway.checkpoints.links import Links
from sandlot_gateway.checkpoints.part import Part
from sandlot_gateway.checkpoints.places import Places, files_of, id_of, is_locked, remove_files, sync
from sandlot_gateway.checkpoints.quota import Quota
from sandlot_gateway.checkpoints.rules import (
    ABANDONED_AFTER,
    STOPPED,
    StoreLimits,
    bases,
    check_count,
    is_id,
    oldest_first,
    pack_name,
    soonest_expiry,
    too_many_failed,
)
from sandlot_gateway.checkpoints.sizes import Sizes

_log = logging.getLogger(__name__)

_MEASURE_EVERY = 0.25  # seconds


class Store:
    """A directory of checkpoints, which several gateways may share. Methods raise OSError for disk errors."""

    def __init__(self, directory: Path, *, limits: StoreLimits) -> None:
        self._directory = directory
        self._places = Places(directory)
        self._documents = Documents(self._places)
        self._deletions = Deletions(self._places, self._documents)
        self._links = Links(self._places)
        self._limits = limits
        sizes = Sizes(directory, tenant_of=self._tenant_of, copies=limits.copies)
        self._quota = Quota(sizes.measure, limits=limits, every=_MEASURE_EVERY)

    def check(self) -> None:
        """Do nothing: the directory is made when it is needed."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        if not is_id(checkpoint_id):
            return None
        found = self._documents.read(checkpoint_id)
        if found is None:
            self._deletions.finish_all(checkpoint_id)
            return None
        return self._present(found)

    def all(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first."""
        deleted = {one.id for one in self._deletions.finish_all() if not one.files}
        ids = {path.stem for path in self._directory.glob("cp-*.json")} - deleted
        documents = [found for one in ids if (found := self._documents.read(one)) is not None]
        return oldest_first([one for each in documents if (one := self._present(each)) is not None])

    def deleted(self) -> list[Checkpoint]:
        """Return deleted checkpoints whose files are still there, since a gateway writes them."""
        return self._deletions.finish_all()

    def named(self, tenant: str, name: str) -> list[Checkpoint]:
        """Return the tenant's checkpoints with a name, in the order of their completion, incomplete ones last."""
        found = [one for one in self.all() if one.tenant == tenant and one.name == name]
        return sorted(found, key=lambda one: (self._completed_at(one), one.updated_at))

    def begin(self, checkpoint: Checkpoint) -> Part:
        """Create the document and a locked file for the pack. Raises StoreFull and Occupied."""
        own = self._check_limits(checkpoint.tenant)
        checkpoint.packed, checkpoint.files = True, pack_name(checkpoint.id)
        part = self._part(checkpoint, own)
        try:
            fcntl.flock(part.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._documents.create(checkpoint)
            try:
                if self._deletions.finish_all(checkpoint.id):  # an earlier one is still being written
                    raise Occupied
            except BaseException:
                with contextlib.suppress(OSError, Deleted), self._documents.locked(checkpoint):
                    self._places.document(checkpoint.id).unlink()
                raise
        except BaseException:
            part.discard()
            raise
        return part

    def _part(self, checkpoint: Checkpoint, own: list[Checkpoint]) -> Part:
        """Create the directory of a checkpoint, and the file of its manifest in it."""

        def admit(size: int) -> None:
            self._deletions.check(checkpoint)
            self._quota.admit(checkpoint.tenant, size)

        path = self._places.part(checkpoint)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.mkdir(mode=0o700)
        return Part(
            os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o600),
            path=path,
            name=checkpoint.files,
            admit=admit,
            give_back=lambda size: self._quota.give_back(checkpoint.tenant, size),
            known=lambda: self._links.hold(checkpoint, bases(checkpoint, (one for one in own if one.files))),
        )

    def finish(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Make a complete archive durable, mark its checkpoint DURABLE, and release it. Raises Deleted."""
        assert isinstance(part, Part)
        used = part.complete() if not checkpoint.shared else set[str]()
        if checkpoint.expires_at is None:
            part.sync()
        self._deletions.check(checkpoint)
        if checkpoint.shared:
            self._save(checkpoint)  # first: a reader must not take the file for an archive
        part.path.replace(self._places.archive(checkpoint))
        sync(self._places.files(checkpoint))
        sync(self._directory)
        checkpoint.stored_bytes = part.size
        self._limits.complete(checkpoint, at=time.time())
        try:
            checkpoint.state = State.DURABLE
            self._save(checkpoint)
        except BaseException:
            checkpoint.state = State.PENDING
            raise
        try:
            try:
                self._links.keep_only(checkpoint, used)
            finally:
                part.close()
            self._deletions.finish(checkpoint)
        except OSError as error:  # it is complete; what it holds for nothing goes with it
            _log.warning("files of checkpoint %s that it does not need are kept: %s", checkpoint.id, error)

    def release(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Stop writing a checkpoint; one that was deleted meanwhile loses its files. A second call does nothing."""
        part.close()
        self._deletions.finish(checkpoint)

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        """Mark a checkpoint FAILED that is not complete. Raises Deleted."""
        with self._documents.locked(checkpoint) as found:
            if found.state is not State.PENDING:
                checkpoint.state, checkpoint.error = found.state, found.error
                return
            checkpoint.state, checkpoint.error = State.FAILED, error
            self._documents.save(checkpoint)
        self._places.remove(checkpoint)

    def open(self, checkpoint: Checkpoint) -> OpenArchive:
        """Open the archive for reading. Raises OSError."""
        return self._links.open(checkpoint)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint, not a later one with its id; the files of one that a gateway writes go when that ends."""
        self._deletions.begin(checkpoint)

    def update(self, checkpoint: Checkpoint) -> None:
        """Write the document of a checkpoint again, unless it was deleted."""
        with contextlib.suppress(Deleted):
            self._save(checkpoint)

    def revoke(self, checkpoint: Checkpoint, error: str) -> None:
        """Delete the archive of a DURABLE checkpoint that is still there; it is FAILED from then on, and says why."""
        with contextlib.suppress(Deleted):
            with self._documents.locked(checkpoint):
                checkpoint.state, checkpoint.error, checkpoint.revoked = State.FAILED, error, True
                self._documents.save(checkpoint)  # first: nobody begins to read the archive then
            self._places.remove(checkpoint)

    def used(self) -> int:
        return self._quota.used()

    def usage(self) -> Mapping[str, int]:
        return self._quota.usage()

    def sweep(self) -> None:
        """Delete files that no document names, which a killed gateway leaves behind."""
        self._deletions.finish_all()
        before = time.time() - ABANDONED_AFTER
        for path in self._directory.glob("cp-*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime >= before:
                    continue
                if path.suffix == ".json":
                    self._documents.remove_empty(path)
                elif not self._is_named(path) and not is_locked(path / "part"):
                    remove_files(path)

    def _is_named(self, path: Path) -> bool:
        """Return whether a document needs a file or directory."""
        if path.suffix in (".new", ".deleted"):
            return read(path) is not None and path.suffix == ".deleted"
        return any(
            names(each, files_of(path)) for each in (self._places.document(id_of(path)), self._mark(path))
        )

    def _mark(self, path: Path) -> Path:
        """Return where the document is if the checkpoint that a file or directory is of was deleted."""
        name = f"{id_of(path)}.{files}" if (files := files_of(path)) else id_of(path)
        return self._directory / f"{name}.deleted"

    def expire(self) -> float | None:
        """Delete what has expired; return when the next checkpoint does."""
        return soonest_expiry(self.all())

    def _check_limits(self, tenant: str) -> list[Checkpoint]:
        """Return the tenant's checkpoints once excess FAILED ones are removed. Raises StoreFull at one of its limits."""
        own = [one for one in self.all() if one.tenant == tenant]
        for one in too_many_failed(own):
            self.delete(one)
        deleted = sum(one.tenant == tenant for one in self.deleted())
        self._quota.check(tenant, hint=check_count(tenant, own, deleted=deleted, limits=self._limits))
        return own

    def _tenant_of(self, path: Path) -> str | None:
        found = read(self._mark(path)) or self._documents.read(id_of(path))
        return found.tenant if found is not None else None

    def _save(self, checkpoint: Checkpoint) -> None:
        """Write a document again. Raises Deleted."""
        with self._documents.locked(checkpoint):
            self._documents.save(checkpoint)

    def _present(self, found: Checkpoint) -> Checkpoint | None:
        try:
            return self._settled(found)
        except Deleted:
            return None
        except BlockingIOError as error:  # a gateway that is frozen has its lock
            _log.warning("checkpoint %s cannot be settled: %s", found.id, error)
            return None

    def _settled(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return a checkpoint with its true state; one whose gateway is dead becomes FAILED."""
        if checkpoint.state is State.DELETING:
            self.delete(checkpoint)
            return None
        if self._limits.is_over(checkpoint):
            self.delete(checkpoint)
            return None
        if checkpoint.state is State.DURABLE and checkpoint.shared:
            if not is_locked(self._places.archive(checkpoint)):
                self.delete(checkpoint)  # with its gateway's memory
                return None
            return checkpoint
        if checkpoint.state is not State.PENDING or is_locked(self._places.part(checkpoint)):
            return checkpoint
        return self._without_writer(checkpoint)

    def _without_writer(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the true state of a checkpoint that was PENDING before its file was found without a writer."""
        again = self._documents.read(checkpoint.id)
        if again is None or again.state is not State.PENDING:
            return again  # its writer has just finished, or it was deleted
        if not is_same(again, checkpoint):
            return self._settled(again)  # a later one with its id, which may have a writer
        archive = self._places.archive(again)
        if again.shared and is_locked(archive):
            return again  # its writer is about to record that it is complete
        if self._places.part(again).exists() or not archive.exists() or again.shared:
            self.fail(again, STOPPED)
            return again
        again.state = State.DURABLE  # the manifest gets its name when the archive is complete
        again.stored_bytes = self._links.stored(again)
        self._limits.complete(again, at=archive.stat().st_ctime)
        return again

    def _completed_at(self, checkpoint: Checkpoint) -> float:
        """Return when the archive got its name, by the one clock of the file system; inf if it has not."""
        with contextlib.suppress(FileNotFoundError):
            return self._places.archive(checkpoint).stat().st_ctime
        return math.inf
