"""Sidecars for tests: each test gets its own, and each is looked at afterwards for what it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.executor.gvisor import GvisorPod
from tests.sidecar.gvisor_sidecar import GvisorSidecar, MakeBox
from tests.sidecar.support import Sidecar

Make = Callable[..., Awaitable[Sidecar]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs root: real namespaces, mounts and cgroups"))


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    """Starts sidecars: `await make()` is warm, `await make(claim={})` is claimed; other arguments are config."""
    made: list[Sidecar] = []

    async def start(*, claim: dict[str, Any] | None = None, **config: Any) -> Sidecar:
        sidecar = Sidecar(**config)
        made.append(sidecar)
        await sidecar.start()
        if claim is not None:
            await sidecar.claim(**claim)
        return sidecar

    yield start
    errors: list[BaseException] = []
    for sidecar in made:
        try:
            await sidecar.close()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


@pytest_asyncio.fixture
async def box(make) -> Sidecar:
    """A claimed sidecar."""
    return await make(claim={})


@pytest_asyncio.fixture
async def gvisor() -> AsyncIterator[MakeBox]:
    """Starts sidecars in pods of gVisor's; arguments are the pod's, `claim` is for its sidecar."""
    ends = contextlib.AsyncExitStack()

    async def start(*, claim: dict[str, Any] | None = None, **options: Any) -> GvisorSidecar:
        box = GvisorSidecar(GvisorPod(**options))
        ends.push_async_callback(asyncio.to_thread, box.pod.close)
        ends.push_async_callback(box.close)
        await asyncio.to_thread(box.pod.start)
        await box.start()
        await box.claim(**(claim or {}))
        return box

    async with ends:
        yield start
