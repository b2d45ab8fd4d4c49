"""Retries a write with backoff until it succeeds or is rejected: the API server may be away for minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandlot_kube import backoff
from sandlot_kube.errors import KubeError

from .api import refused

T = TypeVar("T")
_SHORTEST, _LONGEST = 0.1, 5.0


async def until_done(work: Callable[[], Awaitable[T]]) -> T:
    """Retry `work` until it succeeds. Raises KubeError if the API server rejects it."""
    failures = 0
    while True:
        try:
            return await work()
        except KubeError as error:
            if refused(error):
                raise
            failures += 1
            wait = backoff.pause(failures, shortest=_SHORTEST, longest=_LONGEST)
            await asyncio.sleep(max(error.retry_after or 0.0, wait))
