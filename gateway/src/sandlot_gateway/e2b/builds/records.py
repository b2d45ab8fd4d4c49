"""Documents of templates and builds in the directory of checkpoints, for all gateways that mount it.

A build that runs has a locked file; without the lock its gateway is dead, and the build has failed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.atomic_file import write_atomic

from .names import is_build_id, is_template_id, template_id, tenant_part

KEPT = 2 * 3600.0  # seconds after its end, or its request, for which a build can be asked for
_OF_BUILDS = ("build-*.json", "*-*.log", "*-*.lock", "*.new")
_MOST_BUILDS = 1000  # documents of a tenant

Kind = TypeVar("Kind")


class State(StrEnum):
    """States of a build, as E2B's SDKs name them."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


class TooMany(Exception):
    """Raised when a tenant has as many builds as it may."""


class Gone(Exception):
    """Raised for a template that was deleted meanwhile."""


class Tagged(msgspec.Struct):
    """The build that a tag names."""

    build: str
    checkpoint: str
    at: float


class TemplateRecord(msgspec.Struct):
    """A template; `former`: checkpoints that no tag names any more, and since when."""

    id: str
    tenant: str
    name: str
    tags: dict[str, Tagged] = {}
    former: dict[str, float] = {}


class BuildRecord(msgspec.Struct):
    """A build; `step` is the one that failed, by its number from 1, or `base` or `finalize`."""

    id: str
    template: str
    tenant: str
    name: str
    tags: list[str]
    state: State = State.WAITING
    cpu: float | None = None
    memory_gb: float | None = None
    sandbox: SandboxId | None = None
    checkpoint: str | None = None
    message: str = ""
    step: str | None = None


class Records:
    """One directory. Methods block; they raise OSError for disk errors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tenant_directory(self, template: str) -> Path:
        return self._directory / tenant_part(template)

    def log_path(self, build: BuildRecord) -> Path:
        return self._file(build.template, f"{build.id}.log")

    def request(self, build: BuildRecord) -> None:
        """Keep a new build and its template. Raises TooMany."""
        directory = self.tenant_directory(build.template)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.sweep(directory)
        if sum(1 for _ in directory.glob("build-*.json")) >= _MOST_BUILDS:
            raise TooMany(f"{_MOST_BUILDS} builds of the last {KEPT / 3600:g} hours are kept: wait for some")
        with self.template(build.template, tenant=build.tenant, name=build.name):
            pass
        self.save(build)

    def save(self, build: BuildRecord) -> None:
        write_atomic(self._build(build.template, build.id), msgspec.json.encode(build), durable=True)

    def build(self, template: str, build: str, *, tenant: str) -> BuildRecord | None:
        """Return a tenant's build with its true state; one whose gateway is dead has failed."""
        if not (is_template_id(template) and is_build_id(build)):
            return None
        found = self._read(self._build(template, build), BuildRecord)
        if found is None or found.tenant != tenant:
            return None
        if found.state is State.BUILDING and (lock := self.lock(found)) is not None:
            with lock:
                found = self._read(self._build(template, build), BuildRecord) or found
                if found.state is State.BUILDING:
                    found.state = State.ERROR
                    found.message = "the gateway stopped during the build: build the template again"
                    self.save(found)
        return found

    def building(self, template: str) -> list[BuildRecord]:
        """Return the builds of a template that run."""
        paths = self.tenant_directory(template).glob("build-*.json")
        found = (self._read(path, BuildRecord) for path in paths)
        return [one for one in found if one and one.template == template and one.state is State.BUILDING]

    def lock(self, build: BuildRecord) -> Lock | None:
        """Return the lock of whoever runs a build, or None if it is held."""
        return Lock.taken(self._file(build.template, f"{build.id}.lock"), wait=False)

    def find(self, template: str, *, tenant: str) -> TemplateRecord | None:
        if not is_template_id(template):
            return None
        found = self._read(self._template(template), TemplateRecord)
        return found if found is not None and found.tenant == tenant else None

    def of_upload(self, template: str) -> TemplateRecord | None:
        """Return the template of an upload link, which is its credential."""
        return self._read(self._template(template), TemplateRecord) if is_template_id(template) else None

    @contextlib.contextmanager
    def template(
        self, template: str, *, tenant: str, name: str, make: bool = True
    ) -> Iterator[TemplateRecord]:
        """Change a template; it is saved at the end, and made if there is none. Raises Gone."""
        with self._changing(template):
            found = self.find(template, tenant=tenant)
            if found is None and not make:
                raise Gone(f"the template {name!r} was deleted")
            found = found or TemplateRecord(template, tenant, name)
            yield found
            write_atomic(self._template(template), msgspec.json.encode(found), durable=True)

    def remove(self, template: str, *, tenant: str) -> TemplateRecord | None:
        """Forget a template; return what it was."""
        with self._changing(template):
            found = self.find(template, tenant=tenant)
            if found is not None:
                self._template(template).unlink(missing_ok=True)
            return found

    @contextlib.contextmanager
    def _changing(self, template: str) -> Iterator[None]:
        path = self._file(template, "templates.lock")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = Lock.taken(path, wait=True)
        assert lock is not None
        with lock:
            yield

    def tenants(self) -> list[Path]:
        """Return the directories of all tenants."""
        return (
            [path for path in self._directory.iterdir() if path.is_dir()] if self._directory.is_dir() else []
        )

    def templates(self, directory: Path) -> list[TemplateRecord]:
        """Return the templates of a tenant's directory."""
        found = (self._read(path, TemplateRecord) for path in directory.glob("template-*.json"))
        return [one for one in found if one is not None]

    def sweep(self, directory: Path) -> bool:
        """Delete what builds left that ended, or were requested and never begun, long ago; say if some are left."""
        before = time.time() - KEPT
        for path in [path for kind in _OF_BUILDS for path in directory.glob(kind)]:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
        for path in directory.glob("template-*.json"):
            with contextlib.suppress(FileNotFoundError):
                found = self._read(path, TemplateRecord)
                if path.stat().st_mtime < before and (found is None or not (found.tags or found.former)):
                    path.unlink()
        return any(path for kind in _OF_BUILDS for path in directory.glob(kind))

    def _template(self, template: str) -> Path:
        return self._file(template, f"template-{template}.json")

    def _build(self, template: str, build: str) -> Path:
        return self._file(template, f"build-{build}.json")

    def _file(self, template: str, name: str) -> Path:
        return self.tenant_directory(template) / name

    @staticmethod
    def _read(path: Path, kind: type[Kind]) -> Kind | None:
        """Read a document; return None if it is missing or invalid."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


class Lock:
    """A locked file; leaving its block, or the process's end, unlocks it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def taken(cls, path: Path, *, wait: bool) -> Lock | None:
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def new_build(tenant: str, name: str, tags: list[str]) -> BuildRecord:
    return BuildRecord(str(uuid.uuid4()), template_id(tenant, name), tenant, name, tags)
