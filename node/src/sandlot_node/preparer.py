"""Prepares images on request: one preparation however many ask, access by proof, disk within the budget."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sandlot_contract import images as references

from .access import EVERYONE, Access
from .elapsed import is_over
from .engine import Engine
from .failures import ImageError, Kind
from .images import Image, ImageId, Progress, SlotId
from .ledger import Entry, Ledger
from .metrics import Metrics
from .prepared import Prepared, absent
from .pull_queue import PullQueue
from .requests import Limits, Request
from .state import State

_log = logging.getLogger(__name__)

_UNWRITTEN = "could not write which slots use which images; a restart may evict them: %s"

_Key = tuple[str, str | None, str]


@dataclass
class Preparation:
    """A preparation that runs or has failed a moment ago."""

    progress: Progress = field(default_factory=lambda: Progress("waiting"))
    task: asyncio.Task[Image] | None = None
    failed: ImageError | None = None
    failed_at: float = 0.0


class Preparer:
    """The images of a node. Its methods run in one event loop."""

    def __init__(
        self,
        *,
        engine: Engine,
        ledger: Ledger,
        access: Access,
        state: State,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.ledger = ledger
        self._engine = engine
        self._access = access
        self._state = state
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._prepared = Prepared(
            engine=engine,
            ledger=ledger,
            access=access,
            min_free=limits.min_free,
            metrics=metrics,
            clock=clock,
        )
        self._preparations: dict[_Key, Preparation] = {}
        # A name of an image that is here needs no pull but a question to the registry, so it waits for no pull.
        self._pulls: PullQueue[_Key] = PullQueue(limit=limits.pulls)
        self._checks: PullQueue[_Key] = PullQueue(limit=limits.pulls)
        self._salt = secrets.token_bytes(16)
        self._latest_use = 0.0

    async def start(self) -> None:
        """Adopt what an earlier agent prepared, with the uses that it recorded.

        Raises ImageError, and may be called again after that: what was recorded is still there.
        """
        saved = self._state.load()
        for image in await self._engine.restore():
            entry = saved.get(image.id) or Entry(parts={}, last_used=self._clock())
            self._prepared.adopt(image, entry)
            self._latest_use = max(self._latest_use, *entry.uses.values(), 0.0)
        self._save()

    async def stop(self) -> None:
        """Cancel the preparations that run; what is prepared stays."""
        tasks = [one.task for one in self._preparations.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._save()

    async def prepare(self, request: Request, *, wait: float = 0.0) -> Image | Progress:
        """Return the image if it is there and the tenant may have it, else the progress after `wait` seconds.

        Raises ImageError.
        """
        there = self.find(request)
        if there is not None:
            return there
        preparation = self._preparation(request)
        if preparation.failed is not None:
            raise preparation.failed
        assert preparation.task is not None
        done, _ = await asyncio.wait([preparation.task], timeout=wait)
        return preparation.task.result() if done else preparation.progress

    def find(self, request: Request) -> Image | None:
        """Return the image if it is there and the tenant may have it. Raises ImageError for a name that is not allowed."""
        refusal = references.refusal(request.reference, allowed=self._limits.registries)
        if refusal is not None:
            valid = references.is_image_name(request.reference)
            raise ImageError(Kind.NOT_ALLOWED if valid else Kind.INVALID, refusal)
        now = self._clock()
        found = self._access.find(request.reference, request.tenant, now=now)
        if found is None or not self.ledger.touch(found, now=now, name=request.reference):
            return None
        return self._prepared.image(found)

    def _preparation(self, request: Request) -> Preparation:
        """Return the one that runs, or has just failed, for the same name, tenant and credentials; else start one."""
        key = self._key(request)
        now = self._clock()
        for other, one in list(self._preparations.items()):
            if one.failed is not None and is_over(one.failed_at, self._limits.failure_seconds, now=now):
                del self._preparations[other]
        found = self._preparations.get(key)
        if found is not None:
            for queue in (self._pulls, self._checks):
                queue.join(key, request.tenant)
            return found
        preparation = self._preparations[key] = Preparation()
        preparation.task = asyncio.create_task(self._run(key, request, preparation))
        # A caller that gave up does not read the failure.
        preparation.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return preparation

    def _key(self, request: Request) -> _Key:
        if request.auth is None:
            return request.reference, EVERYONE, ""
        auth = request.auth
        words = "\0".join((auth.username, auth.password, auth.identity_token))
        digest = hashlib.blake2b(words.encode(), key=self._salt).hexdigest()
        return request.reference, request.tenant, digest

    async def _run(self, key: _Key, request: Request, preparation: Preparation) -> Image:
        started = time.monotonic()
        known = self._prepared.has_name(request.reference)
        try:
            async with (self._checks if known else self._pulls).turn(key, request.tenant):
                image = await self._prepare(request, preparation)
        except ImageError as error:
            self._metrics.preparations.labels(error.kind).inc()
            _log.info("could not prepare %s: %s", request.reference, error)
            self._access.deny(request.reference, self._owner(request))
            preparation.failed, preparation.failed_at = error, self._clock()
            raise
        except BaseException:
            del self._preparations[key]
            raise
        del self._preparations[key]
        for other in self._preparations:
            if other[0] == request.reference:
                self._pulls.admit(other)
        self._metrics.preparations.labels("ok").inc()
        self._metrics.prepare_seconds.observe(time.monotonic() - started)
        return image

    def _owner(self, request: Request) -> str | None:
        return EVERYONE if request.auth is None else request.tenant

    async def _prepare(self, request: Request, preparation: Preparation) -> Image:
        def report(progress: Progress) -> None:
            preparation.progress = progress

        reference = request.reference
        # Then nothing is pulled, unless the name means another image by now.
        known = self._prepared.has_name(reference)
        if not known:
            await self._prepared.make_space()
        count = self._metrics.pulled_bytes.inc
        async with self._engine.fetched(reference, request.auth, report, count) as image_id:
            report(Progress("mounting", preparation.progress.done, preparation.progress.total))
            if known and image_id not in self._prepared:
                await self._prepared.make_space()
            image = await self._prepared.attach(image_id, name=reference, tenant=self._owner(request))
        await self._prepared.keep_budget(image_id)
        self._save()
        return image

    def preparing(self) -> list[str]:
        """Return the names whose preparation runs, or waits for its turn."""
        return sorted({key[0] for key, one in self._preparations.items() if one.failed is None})

    def images(self) -> list[Image]:
        """Return the prepared images."""
        return self._prepared.images()

    def image(self, image_id: ImageId) -> Image:
        """Return a prepared image. Raises ImageError."""
        return self._prepared.image(image_id)

    def use(self, image_id: ImageId, slot: SlotId) -> float:
        """Record that a slot uses an image, so that it stays; return since when. Raises ImageError."""
        # Also after the clock was set back: the end of an earlier use comes a second after this one, and must not end it.
        now = self._clock()
        since = max(now, math.nextafter(self._latest_use, math.inf))
        if not self.ledger.use(image_id, slot, now=now, since=since):
            raise absent(image_id)
        self._latest_use = since
        self._note(image_id)
        return since

    def unuse(self, image_id: ImageId, slot: SlotId, *, until: float | None = None) -> None:
        """Record that a slot no longer uses an image, unless it began to after `until`."""
        self.ledger.unuse(image_id, slot, now=self._clock(), until=until)
        self._note(image_id)

    async def delete(self, image_id: ImageId) -> None:
        """Release an image that no slot uses. Raises ImageError."""
        entry = self.ledger.entries.get(image_id)
        if entry is None:
            raise absent(image_id)
        if entry.uses:
            slots = ", ".join(sorted(entry.uses)[:5])
            raise ImageError(
                Kind.IN_USE, f"{len(entry.uses)} slots use the image {image_id}: {slots}; end them first"
            )
        await self._prepared.release(image_id)
        self._save()

    async def free(self) -> int:
        """Return the bytes that the images' file system has left. Raises ImageError."""
        return await self._engine.free()

    async def housekeep(self) -> None:
        """Forget uses of pods that are gone, and release what exceeds the budget. Raises ImageError."""
        now = self._clock()
        self._access.expire(now=now)
        try:
            living = await self._engine.living()
            if living is not None:
                dropped = self.ledger.drop_dead(living, now=now, grace=self._limits.use_grace)
                if dropped:
                    _log.info("slots without a pod no longer hold their images: %s", ", ".join(dropped))
            await self._prepared.keep_budget()
        finally:
            # Also after a failure, which may last for days: otherwise the log of changes would grow all the time.
            self._save()

    def _note(self, image_id: ImageId) -> None:
        """Write one image's uses."""
        entry = self.ledger.entries.get(image_id)
        if entry is None:
            return
        try:
            self._state.note(image_id, entry)
        except OSError as error:
            _log.error(_UNWRITTEN, error)

    def _save(self) -> None:
        try:
            self._state.save(self.ledger)
        except OSError as error:
            _log.error(_UNWRITTEN, error)
