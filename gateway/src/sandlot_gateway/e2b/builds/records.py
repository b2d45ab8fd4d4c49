"""Documents of builds in the directory of checkpoints, for all gateways that mount it.

A build that runs has a locked file; without the lock its gateway is dead, and the build has failed.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from enum import StrEnum
from pathlib import Path

import msgspec
from sandlot_contract.ids import SandboxId

from sandlot_gateway.atomic_file import write_atomic

from .locks import Lock
from .names import is_build_id, is_template_id, template_id
from .template_records import KEPT, TemplateRecords, read_document

_OF_BUILDS = ("build-*.json", "*-*.log", "*-*.lock", "*.new")
_MOST_BUILDS = 1000  # documents of a tenant


class State(StrEnum):
    """States of a build, as E2B's SDKs name them."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


class TooMany(Exception):
    """Raised when a tenant has as many builds as it may."""


class BuildRecord(msgspec.Struct):
    """A build; `step` is the one that failed, by its number from 1, or `base` or `finalize`; `life`: its template's.

    `checkpoint`: its files, named before they are written. Unless the build is READY, they have to be deleted.
    """

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
    life: str = ""


class Records(TemplateRecords):
    """One directory. Methods block; they raise OSError for disk errors."""

    def log_path(self, build: BuildRecord) -> Path:
        return self._file(build.template, f"{build.id}.log")

    def request(self, build: BuildRecord) -> None:
        """Keep a new build and its template. Raises TooMany."""
        directory = self.tenant_directory(build.template)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.sweep(directory)
        if sum(1 for _ in directory.glob("build-*.json")) >= _MOST_BUILDS:
            raise TooMany(f"{_MOST_BUILDS} builds of the last {KEPT / 3600:g} hours are kept: wait for some")
        with self.template(build.template, tenant=build.tenant, name=build.name) as record:
            build.life = record.life
        self.save(build)

    def save(self, build: BuildRecord) -> None:
        write_atomic(self._build(build.template, build.id), msgspec.json.encode(build), durable=True)

    def build(self, template: str, build: str, *, tenant: str) -> BuildRecord | None:
        """Return a tenant's build with its true state; one whose gateway is dead, or template deleted, has failed."""
        if not (is_template_id(template) and is_build_id(build)):
            return None
        found = read_document(self._build(template, build), BuildRecord)
        if found is None or found.tenant != tenant:
            return None
        if found.state is State.BUILDING:
            found = self._settled(found)
        if found.state is State.WAITING and not self.has_template(found):
            found.state = State.ERROR
            found.message = f"the template {found.name!r} was deleted: request another build"
        return found

    def _settled(self, build: BuildRecord) -> BuildRecord:
        """Return a build that ran when it was read, as ended if its gateway is dead."""
        path = self._build(build.template, build.id)
        # Shared: one that excluded others would be a running build to whoever looks at the same time.
        lock = Lock.taken(self._lock(build), wait=False, shared=True)
        if lock is None:  # it runs, or a sweep deletes its files since it has just ended
            return read_document(path, BuildRecord) or build
        with lock:
            build = read_document(path, BuildRecord) or build
            if build.state is State.BUILDING:
                if self.has_files(build):  # its gateway died just after the tags had moved
                    build.state = State.READY
                else:
                    build.state = State.ERROR
                    build.message = "the gateway stopped during the build: build the template again"
                self.save(build)
        return build

    def has_template(self, build: BuildRecord) -> bool:
        """Return whether the template for which a build was requested is still there."""
        found = self.find(build.template, tenant=build.tenant)
        return found is not None and found.is_life(build.life)

    def keep_template(self, build: BuildRecord) -> None:
        """Let the template of a build that begins stay until its end. Raises Gone."""
        with self.template(build.template, tenant=build.tenant, name=build.name, life=build.life):
            pass

    def building(self, template: str) -> list[BuildRecord]:
        """Return the builds of a template that run."""
        paths = self.tenant_directory(template).glob("build-*.json")
        found = (read_document(path, BuildRecord) for path in paths)
        return [one for one in found if one and one.template == template and one.state is State.BUILDING]

    def has_files(self, build: BuildRecord) -> bool:
        """Return whether a build's template has its files, also when no tag names them any more."""
        found = self.stored(build.template, tenant=build.tenant)
        if found is None or build.checkpoint is None:
            return False
        return build.checkpoint in {*(each.checkpoint for each in found.tags.values()), *found.former}

    def with_files(self, directory: Path) -> list[BuildRecord]:
        """Return the builds of a tenant's directory that run, or failed, and may have files."""
        found = (read_document(path, BuildRecord) for path in directory.glob("build-*.json"))
        return [one for one in found if one is not None and _may_have_files(one)]

    def lock(self, build: BuildRecord) -> Lock | None:
        """Return the lock of whoever runs a build, or None if it is held."""
        return Lock.taken(self._lock(build), wait=False)

    def sweep(self, directory: Path) -> None:
        """Delete what builds left that ended, or were requested and never begun, long ago.

        A document that names files which have to be deleted stays until they are.
        """
        before = time.time() - KEPT
        for path in [path for kind in _OF_BUILDS for path in directory.glob(kind)]:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before and not _names_files(path):
                    path.unlink()
        self.sweep_templates(directory)

    def _lock(self, build: BuildRecord) -> Path:
        return self._file(build.template, f"{build.id}.lock")

    def _build(self, template: str, build: str) -> Path:
        return self._file(template, f"build-{build}.json")


def _may_have_files(build: BuildRecord) -> bool:
    return build.checkpoint is not None and build.state is not State.READY


def _names_files(path: Path) -> bool:
    found = read_document(path, BuildRecord) if path.suffix == ".json" else None
    return found is not None and _may_have_files(found)


def new_build(tenant: str, name: str, tags: list[str]) -> BuildRecord:
    return BuildRecord(str(uuid.uuid4()), template_id(tenant, name), tenant, name, tags)
