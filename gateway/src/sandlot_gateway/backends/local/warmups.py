"""Prepares the images of warm-ups one by one, in turn for all warm-ups, and goes on after a restart."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sandlot_contract.warmups import MAX_ERRORS, Pace

from ...atomic_file import write_atomic
from ...core.backend import BackendError
from ...core.warmups import ImageFailure, Warmup, WarmupId, WarmupSpec, WarmupState

log = logging.getLogger(__name__)

KEEP = 3600.0  # seconds that a finished warm-up is shown


@dataclass(slots=True)
class _Work:
    """A warm-up; `left` has the images that are not tried yet, the most frequent last."""

    spec: WarmupSpec
    created_at: float
    left: list[str]
    finished_at: float | None = None
    ready: int = 0
    bytes: int = 0
    failed: int = 0
    errors: list[ImageFailure] = field(default_factory=list)
    pace: Pace | None = None  # None until its first image begins


class LocalWarmups:
    """`prepare` returns the bytes of an image that is ready. Raises BackendError."""

    def __init__(
        self, path: Path, *, prepare: Callable[[str], Awaitable[int]], clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._prepare = prepare
        self._clock = clock
        self._works: dict[WarmupId, _Work] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Load the warm-ups of an earlier gateway and begin to work."""
        self._works = {work.spec.id: work for work in _load(self._path)}
        self._task = asyncio.create_task(self._run(), name="image warm-ups")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def forget_all(self) -> None:
        """Delete all warm-ups with their stack."""
        self._works.clear()
        self._path.unlink(missing_ok=True)

    async def all(self) -> list[Warmup]:
        self._drop_old()
        return [self._shown(work) for work in self._works.values()]

    async def find(self, warmup_id: WarmupId) -> Warmup | None:
        self._drop_old()
        work = self._works.get(warmup_id)
        return None if work is None else self._shown(work)

    async def create(self, spec: WarmupSpec) -> Warmup:
        work = self._works[spec.id] = _Work(spec, self._clock(), _in_order(spec))
        try:
            self._save()
        except BackendError:
            del self._works[spec.id]
            raise
        self._changed.set()
        return self._shown(work)

    async def delete(self, warmup_id: WarmupId) -> bool:
        if self._works.pop(warmup_id, None) is None:
            return False
        self._save()
        return True

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            for work in list(self._works.values()):
                if work.left and work.spec.id in self._works:
                    await self._next(work)
                    self._changed.set()  # there may be more
            await self._changed.wait()

    async def _next(self, work: _Work) -> None:
        """Prepare one image of a warm-up."""
        if work.pace is None:
            work.pace = Pace(self._clock())
        image = work.left[-1]
        try:
            work.bytes += await self._prepare(image)
            work.ready += 1
        except BackendError as error:
            self._failed(work, image, str(error))
        except Exception:
            log.exception("warm-up %s: %s failed unexpectedly", work.spec.id, image)
            self._failed(work, image, "unexpected failure in the gateway; its log has the cause")
        work.left.pop()
        work.pace.ready(self._clock())
        if not work.left:
            work.finished_at = self._clock()
            if work.spec.id in self._works:
                try:
                    self._save()
                except BackendError as error:  # images fill disks, and other warm-ups wait
                    log.warning("warm-up %s is done, and a restart will repeat it: %s", work.spec.id, error)

    def _failed(self, work: _Work, image: str, message: str) -> None:
        work.failed += 1
        if len(work.errors) < MAX_ERRORS:
            work.errors.append(ImageFailure(image, message))

    def _shown(self, work: _Work) -> Warmup:
        state = WarmupState.PENDING if work.pace is None else WarmupState.RUNNING
        left = len(work.left)
        return Warmup(
            work.spec,
            WarmupState.DONE if work.finished_at is not None else state,
            created_at=work.created_at,
            finished_at=work.finished_at,
            ready=work.ready,
            failed=work.failed,
            copies=len(work.spec.images),
            copies_ready=work.ready,
            bytes=work.bytes,
            seconds_left=work.pace.seconds_left(left, now=self._clock()) if work.pace and left else None,
            errors=tuple(work.errors),
        )

    def _drop_old(self) -> None:
        since = self._clock() - KEEP
        old = [id for id, work in self._works.items() if (work.finished_at or since) < since]
        for warmup_id in old:
            del self._works[warmup_id]
        if old:
            self._save()

    def _save(self) -> None:
        documents = [
            {
                "id": work.spec.id,
                "tenant": work.spec.tenant,
                "images": dict(work.spec.images),
                "created_at": work.created_at,
                "finished_at": work.finished_at,
                "ready": work.ready,
                "bytes": work.bytes,
                "failed": work.failed,
                "errors": [asdict(error) for error in work.errors],
            }
            for work in self._works.values()
        ]
        try:
            write_atomic(self._path, json.dumps({"warmups": documents}).encode())
        except OSError as error:
            raise BackendError(
                f"cannot write {self._path}: {error.strerror}; free space on the gateway's disk"
            ) from error


def _in_order(spec: WarmupSpec) -> list[str]:
    return sorted(spec.images, key=lambda image: (spec.images[image], image))


def _load(path: Path) -> list[_Work]:
    """Load the warm-ups; unfinished ones begin anew, since images that are ready take no time."""
    try:
        documents: list[dict[str, Any]] = json.loads(path.read_bytes())["warmups"]
        return [_work(document) for document in documents]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("cannot read %s: %s; its image warm-ups are forgotten", path, error)
        return []


def _work(document: dict[str, Any]) -> _Work:
    images = {str(image): int(weight) for image, weight in document["images"].items()}
    spec = WarmupSpec(WarmupId(document["id"]), str(document["tenant"]), images)
    if document["finished_at"] is None:
        return _Work(spec, float(document["created_at"]), _in_order(spec))
    return _Work(
        spec,
        float(document["created_at"]),
        [],
        finished_at=float(document["finished_at"]),
        ready=int(document["ready"]),
        bytes=int(document["bytes"]),
        failed=int(document["failed"]),
        errors=[ImageFailure(**error) for error in document["errors"]],
    )
