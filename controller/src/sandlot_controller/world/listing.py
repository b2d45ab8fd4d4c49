"""Waits for the first list of each resource, and tells which resources cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from sandlot_kube.reflector import Reflector


class ListsFailed(Exception):
    """A resource could not be listed in time; a plan without it would create and end the wrong pods."""


class Followed(Protocol):
    """What is listed and watched."""

    @property
    def path(self) -> str: ...

    @property
    def failure(self) -> str | None: ...


def unreadable(followed: Iterable[Followed]) -> str | None:
    """Return which resources cannot be listed or watched, and why; None: all can."""
    failures = [f"cannot read {one.path}: {one.failure}" for one in followed if one.failure is not None]
    return "; ".join(failures) or None


async def listed(reflectors: Iterable[Reflector[Any]], *, timeout: float) -> None:
    """Wait for the first list of each. Raises ListsFailed if one fails for `timeout` seconds.

    A list that is only slow is waited for: the next leader would have to begin it again.
    """
    missing = list(reflectors)
    while missing:
        try:
            async with asyncio.timeout(timeout):
                for reflector in missing:
                    await reflector.synced.wait()
                return
        except TimeoutError:
            missing = [one for one in missing if not one.synced.is_set()]
            if (failures := unreadable(missing)) is not None:
                raise ListsFailed(failures) from None
