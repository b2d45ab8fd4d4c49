"""Keeps the images that are prepared: puts them in place, and releases idle ones when there is too little space."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from .access import Access
from .engine import Engine
from .failures import ImageError, Kind
from .images import Image, ImageId
from .ledger import Entry, Ledger
from .metrics import Metrics


class Prepared:
    """The images of the node. Every coroutine may raise ImageError."""

    def __init__(
        self,
        *,
        engine: Engine,
        ledger: Ledger,
        access: Access,
        min_free: int,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.ledger = ledger
        self._engine = engine
        self._access = access
        self._min_free = min_free
        self._metrics = metrics
        self._clock = clock
        self._images: dict[ImageId, Image] = {}
        self._locks: WeakValueDictionary[ImageId, asyncio.Lock] = WeakValueDictionary()

    def __contains__(self, image_id: object) -> bool:
        return image_id in self.ledger.entries

    def images(self) -> list[Image]:
        return [self._images[image_id] for image_id in self.ledger.entries]

    def image(self, image_id: ImageId) -> Image:
        """Return a prepared image. Raises ImageError."""
        if image_id not in self:
            raise absent(image_id)
        return self._images[image_id]

    def has_name(self, name: str) -> bool:
        """Return whether a prepared image was asked for by this name, which may mean another one by now."""
        return any(
            name in entry.names or name in self._images[image_id].digests
            for image_id, entry in self.ledger.entries.items()
        )

    def adopt(self, image: Image, entry: Entry) -> None:
        """Add an image that is in place."""
        entry.parts = image.parts
        self._images[image.id] = image
        self.ledger.entries[image.id] = entry

    async def attach(self, image_id: ImageId, *, name: str, tenant: str | None) -> Image:
        """Put a fetched image in place, and record that this tenant may have it by this name."""
        async with self._changing(image_id):
            image = await self._engine.attach(image_id)
            now = self._clock()
            self._images[image_id] = image
            self.ledger.add(image_id, image.parts, name=name, now=now)
            self._access.prove(name, tenant, image_id, now=now)
        return image

    async def make_space(self) -> None:
        """Release idle images while the disk has less space than the operator wants to keep free."""
        if self._min_free <= 0:
            return
        while await self._engine.free() < self._min_free:
            idle = self.ledger.idle(now=self._clock())
            if not idle:
                raise ImageError(
                    Kind.NO_SPACE,
                    f"the node has less than {self._min_free} bytes free, and no image on it is idle. "
                    "Wait until sandboxes end, enlarge the disk, or lower the minimum (SANDLOT_MIN_FREE)",
                )
            await self._release_idle(idle[0])

    async def keep_budget(self, keep: ImageId | None = None) -> None:
        """Release idle images until the budget holds. If it does not hold without them, give `keep` up."""
        for victim in self.ledger.victims(now=self._clock(), keep=keep):
            await self._release_idle(victim)
        if keep is None or self.ledger.used() <= self.ledger.budget:
            return
        entry = self.ledger.entries.get(keep)
        if entry is None or entry.uses:
            return
        used = self.ledger.used(without=[keep])
        with suppress(ImageError):
            await self.release(keep)
        raise ImageError(
            Kind.NO_SPACE,
            f"the image does not fit: the node's images may have {self.ledger.budget} bytes (SANDLOT_BUDGET), "
            f"{used} are taken by images in use or asked for a moment ago, and this one needs {sum(entry.parts.values())}. "
            "Wait until sandboxes end, or raise the budget",
        )

    async def release(self, image_id: ImageId) -> None:
        """Release an image unless a slot uses it."""
        async with self._changing(image_id):
            entry = self.ledger.entries.get(image_id)
            if entry is not None and not entry.uses:
                await self._drop(image_id)

    async def _release_idle(self, image_id: ImageId) -> None:
        async with self._changing(image_id):
            # It may have been asked for since it was chosen.
            if self.ledger.is_idle(image_id, now=self._clock()):
                await self._drop(image_id)
                self._metrics.evictions.inc()

    async def _drop(self, image_id: ImageId) -> None:
        """Forget an image first, so that no slot gets it while its files go."""
        entry = self.ledger.remove(image_id)
        self._access.forget(image_id)
        try:
            await self._engine.release(image_id)
        except ImageError:
            if entry is not None:
                self.ledger.entries[image_id] = entry
            raise
        self._images.pop(image_id, None)

    def _changing(self, image_id: ImageId) -> asyncio.Lock:
        """Return the lock under which an image is attached or released; it is kept while something holds it."""
        return self._locks.setdefault(image_id, asyncio.Lock())


def absent(image_id: str) -> ImageError:
    return ImageError(
        Kind.NOT_FOUND, f"no image {image_id} is prepared on this node; prepare it first (POST /v1/images)"
    )
