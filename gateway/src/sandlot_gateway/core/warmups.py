"""What the gateway knows of a warm-up: images that are prepared before sandboxes need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType, Protocol

WarmupId = NewType("WarmupId", str)


class WarmupState(StrEnum):
    """PENDING: nothing has begun. DONE: each image is ready or has failed."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class WarmupSpec:
    """A request for images; `images` maps a name to how often it occurs."""

    id: WarmupId
    tenant: str
    images: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ImageFailure:
    """An image that cannot be prepared; `node`: None on one machine, or if it concerns all nodes."""

    image: str
    message: str
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Warmup:
    """A warm-up and its progress. A copy is one image on one node; an image is ready when all its copies are.

    `seconds_left`: None until it can be measured. `bytes`: of the copies that are ready.
    """

    spec: WarmupSpec
    state: WarmupState
    created_at: float
    finished_at: float | None = None
    ready: int = 0
    failed: int = 0
    copies: int = 0
    copies_ready: int = 0
    bytes: int = 0
    seconds_left: float | None = None
    errors: tuple[ImageFailure, ...] = field(default=())
    message: str | None = None


class Warmups(Protocol):
    """A backend's warm-ups. All methods may raise BackendError."""

    async def all(self) -> list[Warmup]:
        """Return the warm-ups of all tenants, the oldest first; finished ones for a while."""
        ...

    async def find(self, warmup_id: WarmupId) -> Warmup | None: ...

    async def create(self, spec: WarmupSpec) -> Warmup: ...

    async def delete(self, warmup_id: WarmupId) -> bool:
        """Stop and forget a warm-up; images that are ready stay. Return False if there is none."""
        ...
