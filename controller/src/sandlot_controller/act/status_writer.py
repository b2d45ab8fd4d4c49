"""Writes statuses: one write of a resource at a time, and none over a version that was written over already."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandlot_kube.objects import Sandbox, SandboxPool

from .retry import until_done
from .tasks import Tasks

_SHOWN = 5.0  # seconds in which the watch shows a write, or the write is done again


class StatusWriter:
    def __init__(self, *, clock: Callable[[], float], written: Callable[[str], None]) -> None:
        """`written`: a write is over, and what changed meanwhile is to be looked at."""
        self._clock = clock
        self._over = written
        self._tasks = Tasks()
        self._written: dict[str, tuple[str, float]] = {}  # by name: over which resource version, and when

    def is_writing(self, name: str) -> bool:
        return name in self._tasks

    def waits_until(self, resource: Sandbox | SandboxPool) -> float | None:
        """The watch has yet to show the last write; by then it may be done again."""
        version, at = self._written.get(resource.metadata.name, ("", 0.0))
        if version == resource.metadata.resource_version and self._clock() < at + _SHOWN:
            return at + _SHOWN
        return None

    def write(self, resource: Sandbox | SandboxPool, send: Callable[[], Awaitable[None]]) -> bool:
        """Returns at once. False: another write of it is under way."""
        name = resource.metadata.name
        return self._tasks.spawn(name, self._write(resource, send), then=lambda: self._over(name))

    def forget(self, name: str) -> None:
        self._written.pop(name, None)

    async def close(self) -> None:
        await self._tasks.close()

    async def _write(self, resource: Sandbox | SandboxPool, send: Callable[[], Awaitable[None]]) -> None:
        try:
            await until_done(send)
        finally:
            # Also of one that was refused: it would be refused again, and as fast as requests go.
            self._written[resource.metadata.name] = (resource.metadata.resource_version, self._clock())
