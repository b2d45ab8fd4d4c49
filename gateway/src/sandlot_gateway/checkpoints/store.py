"""Stores checkpoints in one directory, a JSON document and an archive each, for all gateways that mount it.

Nothing is cached. A checkpoint that is being written has a locked `.part` file; without the lock, its gateway is dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import secrets
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.atomic_file import write_atomic
from sandlot_gateway.checkpoints.quota import Quota, StoreFull, StoreLimits


class State(StrEnum):
    PENDING = "PENDING"
    DURABLE = "DURABLE"
    FAILED = "FAILED"
    DELETING = "DELETING"


_ID = re.compile(r"cp-[0-9a-f]{24}\Z")
_FAILED_KEPT = 100  # per tenant, for the tenant to read; a document is some 500 bytes
_ABANDONED_AFTER = 3600.0  # seconds, for files without a document


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """The metadata of a checkpoint. Times are Unix seconds, sizes bytes."""

    id: str
    tenant: str
    sandbox_id: SandboxId
    docker_image: str
    disk_size_bytes: int
    created_at: float
    updated_at: float
    state: State = State.PENDING
    parent_id: str | None = None
    team_id: str | None = None
    depth: int = 0
    stored_bytes: int | None = None  # of the archive
    occupied_bytes: int = 0  # of the files in it
    error: str | None = None
    name: str | None = None  # that its caller finds it by
    metadata: dict[str, str] = {}
    failed_by_files: bool = False  # what the sandbox's code did is why it FAILED
    paths: tuple[str, ...] = ()  # only what is at or below them; all if there are none
    without: tuple[str, ...] = ()  # patterns of names that it does not have
    entries: int = 0  # files, directories, links and deletions in it
    origin_id: str | None = None  # the checkpoint that its sandbox was created from


class Store:
    """A directory of checkpoints, which several gateways may share. Methods raise OSError for disk errors."""

    def __init__(self, directory: Path, *, limits: StoreLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._quota = Quota(directory, limits=limits, tenant_of=self._tenant_of)

    def new_id(self) -> str:
        return f"cp-{secrets.token_hex(12)}"

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a document atomically."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        checkpoint.updated_at = time.time()
        write_atomic(self._document(checkpoint.id), msgspec.json.encode(checkpoint), durable=True)

    def get(self, checkpoint_id: str) -> Checkpoint | None:
        if not _ID.match(checkpoint_id):
            return None
        found = self._read(checkpoint_id)
        return self._settled(found) if found is not None else None

    def all(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first."""
        names = [path.stem for path in self._directory.glob("cp-*.json")] if self._directory.is_dir() else []
        found = [checkpoint for name in names if (checkpoint := self.get(name)) is not None]
        return sorted(found, key=lambda checkpoint: (checkpoint.created_at, checkpoint.id))

    def named(self, tenant: str, name: str) -> list[Checkpoint]:
        """Return the tenant's checkpoints with a name, in the order of their completion, incomplete ones last."""
        found = [one for one in self.all() if one.tenant == tenant and one.name == name]
        return sorted(found, key=lambda one: (self._completed_at(one.id), one.updated_at))

    def begin(self, checkpoint: Checkpoint) -> Part:
        """Create the document and a locked file for the archive. Raises StoreFull."""
        self._check_limits(checkpoint.tenant)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._part(checkpoint.id)
        flags = os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC
        part = Part(
            os.open(path, flags, 0o600),
            path=path,
            admit=lambda size: self._quota.admit(checkpoint.tenant, size),
        )
        try:
            fcntl.flock(part.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.save(checkpoint)
        except BaseException:
            part.discard()
            raise
        return part

    def finish(self, checkpoint: Checkpoint, part: Part) -> None:
        """Make a complete archive durable, then mark its checkpoint DURABLE."""
        os.fsync(part.fd)
        part.path.replace(self._archive(checkpoint.id))
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        checkpoint.state = State.DURABLE
        checkpoint.stored_bytes = part.size
        self.save(checkpoint)
        part.close()

    def fail(self, checkpoint: Checkpoint, error: str) -> None:
        checkpoint.state = State.FAILED
        checkpoint.error = error
        self.save(checkpoint)  # first: one without a part counts as abandoned
        self._part(checkpoint.id).unlink(missing_ok=True)

    def open(self, checkpoint: Checkpoint) -> int:
        """Open the archive for reading. Raises OSError."""
        return os.open(self._archive(checkpoint.id), os.O_RDONLY | os.O_CLOEXEC)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint, its document last, so that an interrupted delete is detected and repeated."""
        checkpoint.state = State.DELETING
        self.save(checkpoint)
        self._archive(checkpoint.id).unlink(missing_ok=True)
        self._part(checkpoint.id).unlink(missing_ok=True)
        self._document(checkpoint.id).unlink(missing_ok=True)

    def revoke(self, checkpoint: Checkpoint, error: str) -> None:
        """Delete the archive of a DURABLE checkpoint, which is FAILED from then on: its document says why."""
        checkpoint.state, checkpoint.error = State.FAILED, error
        self.save(checkpoint)  # first: nobody begins to read the archive then
        self._archive(checkpoint.id).unlink(missing_ok=True)

    def used(self) -> int:
        """Measure and return the bytes of all archives, including those being written."""
        return self._quota.used()

    def used_by(self, tenant: str) -> int:
        """Return the bytes of the tenant's archives, including those being written, as measured lately."""
        return self._quota.used_by(tenant)

    def sweep(self) -> None:
        """Delete files without a document, which a killed gateway leaves behind."""
        before = time.time() - _ABANDONED_AFTER
        for path in self._directory.glob("cp-*"):
            abandoned = path.suffix == ".new" or not self._document(path.name.partition(".")[0]).exists()
            with contextlib.suppress(FileNotFoundError):
                if abandoned and path.stat().st_mtime < before:
                    path.unlink()

    def _check_limits(self, tenant: str) -> None:
        """Check the tenant's limits, after removing excess FAILED checkpoints. Raises StoreFull."""
        limits = self._limits
        own = [one for one in self.all() if one.tenant == tenant]
        failed = [one for one in own if one.state is State.FAILED]
        for one in failed[: max(0, len(failed) + 1 - _FAILED_KEPT)]:
            self.delete(one)
        kept = [one for one in own if one.state is not State.FAILED]
        oldest = f"; your oldest is {kept[0].id} of sandbox {kept[0].sandbox_id}" if kept else ""
        if len(kept) >= limits.tenant_count:
            raise StoreFull(
                f"tenant {tenant!r} has {len(kept)} checkpoints, the limit is {limits.tenant_count}"
                f" (checkpoint_tenant_count): delete some{oldest}"
            )
        self._quota.check(tenant, hint=oldest)

    def _tenant_of(self, checkpoint_id: str) -> str | None:
        found = self._read(checkpoint_id)
        return found.tenant if found is not None else None

    def _read(self, checkpoint_id: str) -> Checkpoint | None:
        """Read a document; return None if it is missing or invalid."""
        try:
            return msgspec.json.decode(self._document(checkpoint_id).read_bytes(), type=Checkpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _settled(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return a checkpoint with its true state; one whose gateway is dead becomes FAILED."""
        if checkpoint.state is State.DELETING:
            self.delete(checkpoint)
            return None
        if (
            checkpoint.state is State.FAILED
            and checkpoint.updated_at + self._limits.failed_keep <= time.time()
        ):
            self.delete(checkpoint)
            return None
        if checkpoint.state is not State.PENDING:
            return checkpoint
        try:
            fd = os.open(self._part(checkpoint.id), os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._without_part(checkpoint)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return checkpoint
        else:
            self.fail(checkpoint, "the gateway stopped while it was being written")
            return checkpoint
        finally:
            os.close(fd)

    def _without_part(self, checkpoint: Checkpoint) -> Checkpoint | None:
        again = self._read(checkpoint.id)
        if again is not None and again.state is not State.PENDING:
            return again  # its writer has just finished
        archive = self._archive(checkpoint.id)
        if not archive.exists():
            self.fail(checkpoint, "the gateway stopped before it was written")
            return checkpoint
        checkpoint.state = State.DURABLE  # the archive gets its name when it is complete
        checkpoint.stored_bytes = archive.stat().st_size
        return checkpoint

    def _completed_at(self, checkpoint_id: str) -> float:
        """Return when the archive got its name, by the one clock of the file system; inf if it has not."""
        try:
            return self._archive(checkpoint_id).stat().st_ctime
        except FileNotFoundError:
            return math.inf

    def _document(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.json"

    def _archive(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.tar.gz"

    def _part(self, checkpoint_id: str) -> Path:
        return self._directory / f"{checkpoint_id}.part"


class Part:
    """An archive being written; `admit` counts bytes before each write, and raises StoreFull."""

    def __init__(self, fd: int, *, path: Path, admit: Callable[[int], None]) -> None:
        self.fd = fd
        self.path = path
        self.size = 0
        self._admit = admit

    def write(self, data: bytes) -> None:
        """Write a piece of the archive. Raises StoreFull and OSError."""
        self._admit(len(data))
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        self.size += len(data)

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()
