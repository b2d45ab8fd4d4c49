"""Stores checkpoints in one directory, a JSON document and a pack each, for all gateways that mount it.

Nothing is cached. A checkpoint that is being written has a locked `.part` file; without the lock, its gateway is dead.
A document with the suffix `.deleted` is of a deleted checkpoint whose files are still there.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.checkpoints.checkpoint import Checkpoint, State
from sandlot_gateway.checkpoints.deletions import Deletions
from sandlot_gateway.checkpoints.errors import Deleted, Occupied
from sandlot_gateway.checkpoints.interface import OpenArchive, Writing
from sandlot_gateway.checkpoints.links import Links
from sandlot_gateway.checkpoints.part import Part
from sandlot_gateway.checkpoints.places import Places, is_locked
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

_MEASURE_EVERY = 0.25  # seconds


class Store:
    """A directory of checkpoints, which several gateways may share. Methods raise OSError for disk errors."""

    def __init__(self, directory: Path, *, limits: StoreLimits) -> None:
        self._directory = directory
        self._places = Places(directory)
        self._deletions = Deletions(self._places)
        self._links = Links(self._places)
        self._limits = limits
        sizes = Sizes(directory, tenant_of=self._tenant_of, copies=limits.copies)
        self._quota = Quota(sizes.measure, limits=limits, every=_MEASURE_EVERY)

    def check(self) -> None:
        """Do nothing: the directory is made when it is needed."""

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a document atomically."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        checkpoint.updated_at = time.time()
        write_atomic(self._places.document(checkpoint.id), msgspec.json.encode(checkpoint), durable=True)

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        if not is_id(checkpoint_id):
            return None
        if self._deletions.is_deleted(checkpoint_id):
            self._deletions.finish(checkpoint_id)
            return None
        return self._present(checkpoint_id)

    def all(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first."""
        if not self._directory.is_dir():
            return []
        deleted = self._deletions.finish_all()
        names = {path.stem for path in self._directory.glob("cp-*.json")} - deleted
        found = [checkpoint for name in names if (checkpoint := self._present(name)) is not None]
        return oldest_first(found)

    def deleted(self) -> list[Checkpoint]:
        """Return deleted checkpoints whose files are still there, since a gateway writes them."""
        found = (self._decoded(self._places.deleted(one)) for one in self._deletions.finish_all())
        return [one for one in found if one is not None]

    def named(self, tenant: str, name: str) -> list[Checkpoint]:
        """Return the tenant's checkpoints with a name, in the order of their completion, incomplete ones last."""
        found = [one for one in self.all() if one.tenant == tenant and one.name == name]
        return sorted(found, key=lambda one: (self._completed_at(one.id), one.updated_at))

    def begin(self, checkpoint: Checkpoint) -> Part:
        """Create the document and a locked file for the pack. Raises StoreFull and Occupied."""
        own = self._check_limits(checkpoint.tenant)
        checkpoint.packed = True
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._places.part(checkpoint.id)
        flags = os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o600)
        except FileExistsError as error:
            raise Occupied from error

        def admit(size: int) -> None:
            self._deletions.check(checkpoint.id)
            self._quota.admit(checkpoint.tenant, size)

        name = pack_name(checkpoint.id)
        part = Part(
            fd,
            path=path,
            name=name,
            pack=self._places.pack(checkpoint.id, name),
            admit=admit,
            give_back=lambda size: self._quota.give_back(checkpoint.tenant, size),
            known=lambda: self._links.hold(checkpoint, bases(checkpoint, own)),
        )
        try:
            fcntl.flock(part.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A delete removes its mark last, and may have removed this file before.
            if self._deletions.is_deleted(checkpoint.id) or os.fstat(part.fd).st_nlink == 0:
                raise Occupied
            self.save(checkpoint)
        except BlockingIOError as error:
            part.discard()
            raise Occupied from error
        except BaseException:
            part.discard()
            raise
        return part

    def finish(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Make a complete archive durable, mark its checkpoint DURABLE, and release it. Raises Deleted."""
        assert isinstance(part, Part)
        used = part.complete() if not checkpoint.shared else set[str]()
        if checkpoint.expires_at is None:
            part.sync()
        self._deletions.check(checkpoint.id)
        if checkpoint.shared:
            self.save(checkpoint)  # first: a reader must not take the file for an archive
        part.path.replace(self._places.archive(checkpoint.id))
        self._places.sync()
        checkpoint.stored_bytes = part.size
        self._limits.complete(checkpoint, at=time.time())
        checkpoint.state = State.DURABLE
        self.save(checkpoint)
        self._links.keep_only(checkpoint, used)
        self.release(checkpoint, part)

    def release(self, checkpoint: Checkpoint, part: Writing) -> None:
        """Stop writing a checkpoint; one that was deleted meanwhile loses its files. A second call does nothing."""
        part.close()
        self._deletions.finish(checkpoint.id)

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        """Mark a checkpoint FAILED. Raises Deleted."""
        self._deletions.check(checkpoint.id)
        checkpoint.state = State.FAILED
        checkpoint.error = error
        self.save(checkpoint)  # first: one without a part counts as abandoned
        self._places.part(checkpoint.id).unlink(missing_ok=True)
        self._links.let_go(checkpoint.id)

    def open(self, checkpoint: Checkpoint) -> OpenArchive:
        """Open the archive for reading. Raises OSError."""
        return self._links.open(checkpoint)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint, not a later one with its id; the files of one that a gateway writes go when that ends."""
        found = self._read(checkpoint.id)
        if found is None or found.created_at == checkpoint.created_at:
            self._deletions.begin(checkpoint.id)

    def update(self, checkpoint: Checkpoint) -> None:
        """Write the document of a checkpoint again, unless it was deleted."""
        found = self._read(checkpoint.id)
        if found is not None and found.created_at == checkpoint.created_at:
            self.save(checkpoint)

    def revoke(self, checkpoint: Checkpoint, error: str) -> None:
        """Delete the archive of a DURABLE checkpoint that is still there; it is FAILED from then on, and says why."""
        found = self._read(checkpoint.id)
        if found is None or found.created_at != checkpoint.created_at:
            return
        checkpoint.state, checkpoint.error, checkpoint.revoked = State.FAILED, error, True
        self.save(checkpoint)  # first: nobody begins to read the archive then
        for place in (self._places.archive, self._places.whole):
            place(checkpoint.id).unlink(missing_ok=True)
        self._links.let_go(checkpoint.id)

    def used(self) -> int:
        return self._quota.used()

    def usage(self) -> Mapping[str, int]:
        return self._quota.usage()

    def sweep(self) -> None:
        """Delete files without a document, which a killed gateway leaves behind."""
        self._deletions.finish_all()
        before = time.time() - ABANDONED_AFTER
        for path in self._directory.glob("cp-*"):
            checkpoint_id = path.name.partition(".")[0]
            known = self._places.document(checkpoint_id).exists() or self._deletions.is_deleted(checkpoint_id)
            abandoned = path.suffix == ".new" or not known
            with contextlib.suppress(FileNotFoundError):
                if abandoned and path.stat().st_mtime < before:
                    path.unlink()

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

    def _tenant_of(self, checkpoint_id: str) -> str | None:
        found = self._read(checkpoint_id) or self._decoded(self._places.deleted(checkpoint_id))
        return found.tenant if found is not None else None

    def _read(self, checkpoint_id: str) -> Checkpoint | None:
        return self._decoded(self._places.document(checkpoint_id))

    def _decoded(self, path: Path) -> Checkpoint | None:
        """Read a document; return None if it is missing or invalid."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=Checkpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _present(self, checkpoint_id: str) -> Checkpoint | None:
        found = self._read(checkpoint_id)
        try:
            return self._settled(found) if found is not None else None
        except Deleted:
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
            if not is_locked(self._places.archive(checkpoint.id)):
                self.delete(checkpoint)  # with its gateway's memory
                return None
            return checkpoint
        if checkpoint.state is not State.PENDING or is_locked(self._places.part(checkpoint.id)):
            return checkpoint
        return self._without_writer(checkpoint)

    def _without_writer(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the true state of a checkpoint that was PENDING before its file was found without a writer."""
        again = self._read(checkpoint.id)
        if again is None or again.state is not State.PENDING:
            return again  # its writer has just finished, or it was deleted
        if again.created_at != checkpoint.created_at:
            return self._settled(again)  # a later one with its id, which may have a writer
        archive = self._places.archive(checkpoint.id)
        if again.shared and is_locked(archive):
            return again  # its writer is about to record that it is complete
        if self._places.part(checkpoint.id).exists() or not archive.exists() or again.shared:
            self.fail(checkpoint, STOPPED)
            return checkpoint
        checkpoint.state = State.DURABLE  # the manifest gets its name when the archive is complete
        checkpoint.stored_bytes = self._links.stored(checkpoint.id)
        self._limits.complete(checkpoint, at=archive.stat().st_ctime)
        return checkpoint

    def _completed_at(self, checkpoint_id: str) -> float:
        """Return when the manifest got its name, by the one clock of the file system; inf if it has not."""
        for place in (self._places.archive, self._places.whole):
            with contextlib.suppress(FileNotFoundError):
                return place(checkpoint_id).stat().st_ctime
        return math.inf
