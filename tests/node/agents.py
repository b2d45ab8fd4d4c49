"""The node agent's parts put together for tests, on a containerd or on an engine that is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sandlot_node.access import Access
from sandlot_node.containerd.client import Client
from sandlot_node.containerd.engine import ContainerdEngine
from sandlot_node.engine import Count, Engine, Report
from sandlot_node.failures import ImageError
from sandlot_node.images import Auth, Image, ImageConfig, ImageId, Progress
from sandlot_node.ledger import Ledger
from sandlot_node.metrics import Metrics
from sandlot_node.preparer import Preparer
from sandlot_node.requests import Limits, Request
from sandlot_node.state import State

from tests.node.private_containerd import Containerd
from tests.node.registries import DEAD, OPEN, PRIVATE
from tests.waiting import SECONDS

REGISTRIES = (OPEN, PRIVATE, DEAD)


def preparer_of(
    engine: Engine,
    state: Path,
    *,
    budget: int = 1 << 40,
    hold: float = 0.0,
    clock: Callable[[], float] | None = None,
    metrics: Metrics | None = None,
    **limits: Any,
) -> Preparer:
    extra: dict[str, Any] = {} if clock is None else {"clock": clock}
    return Preparer(
        engine=engine,
        ledger=Ledger(budget=budget, hold=hold),
        access=Access(tag_seconds=300, tenant_seconds=600),
        state=State(state),
        limits=Limits(**{"registries": REGISTRIES, "failure_seconds": 0.0, **limits}),
        metrics=metrics or Metrics(),
        **extra,
    )


async def ready(preparer: Preparer, reference: str, **request: Any) -> Image:
    """Prepare to the end. Raises ImageError."""
    found = await preparer.prepare(Request(reference=reference, **request), wait=SECONDS)
    assert isinstance(found, Image), found
    return found


async def failing(preparer: Preparer, reference: str, **request: Any) -> ImageError:
    with pytest.raises(ImageError) as caught:
        await ready(preparer, reference, **request)
    return caught.value


class Node:
    """A node with containerd, on which agents start and end."""

    def __init__(
        self,
        client: Client,
        daemon: Containerd,
        *,
        images: Path,
        state: Path,
        snapshotter: str | None = None,
        handler: str | None = None,
    ) -> None:
        self.client = client
        self.daemon = daemon
        self.images = images
        self.state = state
        self.progress: list[Progress] = []
        self._snapshotter = snapshotter
        self._handler = handler

    def engine(self) -> ContainerdEngine:
        return ContainerdEngine(
            self.client,
            images=self.images,
            progress_seconds=0.02,
            snapshotter=self._snapshotter,
            handler=self._handler,
        )

    async def agent(self, **options: Any) -> Preparer:
        """Start an agent; what an earlier one left is its own."""
        preparer = preparer_of(self.engine(), self.state, **options)
        await preparer.start()
        return preparer

    async def clear(self) -> None:
        """Release everything, for the next test on this containerd."""
        engine = self.engine()
        for image in await engine.restore():
            await engine.release(image.id)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class PlayedEngine:
    """An engine in memory. `pulls` has each pull; `gate` holds up those of `slow`; `refuse` has what a pull raises."""

    def __init__(self, images: Path) -> None:
        self.directory = images
        self.pulls: list[tuple[str, Auth | None]] = []
        self.attached: dict[ImageId, Image] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.slow: set[str] | None = None  # None: all
        self.refuse: dict[tuple[str, str | None], ImageError] = {}
        self.ids: dict[str, ImageId] = {}
        self.parts: dict[ImageId, dict[str, int]] = {}
        self.stays: ImageError | None = None
        self.left = 1 << 40
        self.pods: set[str] | None = None

    def id_of(self, reference: str) -> ImageId:
        return self.ids.setdefault(reference, ImageId(f"sha256:{len(self.ids):064x}"))

    @asynccontextmanager
    async def fetched(
        self, reference: str, auth: Auth | None, report: Report, count: Count
    ) -> AsyncIterator[ImageId]:
        self.pulls.append((reference, auth))
        report(Progress("pulling", 1, 10))
        if self.slow is None or reference in self.slow:
            await self.gate.wait()
        error = self.refuse.get((reference, None if auth is None else auth.password))
        if error is not None:
            raise error
        image_id = self.id_of(reference)
        count(0 if image_id in self.attached else 10)
        yield image_id

    async def attach(self, image_id: ImageId) -> Image:
        await asyncio.sleep(0)
        if image_id not in self.attached:
            config = ImageConfig(
                platform="linux/amd64", env={}, workdir="/", user="", entrypoint=(), cmd=(), stop_signal=""
            )
            self.attached[image_id] = Image(
                id=image_id,
                rootfs=self.directory / image_id / "rootfs",
                config=config,
                parts=self.parts.get(image_id, {f"blob:{image_id}": 10}),
            )
        return self.attached[image_id]

    async def restore(self) -> list[Image]:
        return list(self.attached.values())

    async def release(self, image_id: ImageId) -> None:
        await asyncio.sleep(0)
        if self.stays is not None:
            raise self.stays
        self.attached.pop(image_id, None)

    async def free(self) -> int:
        return self.left

    async def living(self) -> set[str] | None:
        return self.pods
