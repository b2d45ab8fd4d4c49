"""Writes statuses, one write per resource at a time and never twice over the same version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandlot_kube.objects import Sandbox, SandboxPool

from .retry import until_done
from .tasks import Tasks

_SHOWN = 5.0  # seconds for the watch to show a write, after which it is repeated


class StatusWriter:
    def __init__(self, *, clock: Callable[[], float], written: Callable[[str], None]) -> None:
        """`written` is called after a write, to look at what changed meanwhile."""
        self._clock = clock
        self._over = written
        self._tasks = Tasks()
        self._written: dict[str, tuple[str, float]] = {}  # name -> resource version written over, and when

    def is_writing(self, name: str) -> bool:
        return name in self._tasks

    def waits_until(self, resource: Sandbox | SandboxPool) -> float | None:
        """Return when a write may be repeated while the watch has yet to show it, else None."""
        version, at = self._written.get(resource.metadata.name, ("", 0.0))
        if version == resource.metadata.resource_version and self._clock() < at + _SHOWN:
            return at + _SHOWN
        return None

    def write(self, resource: Sandbox | SandboxPool, send: Callable[[], Awaitable[None]]) -> bool:
        """Begin to write; returns at once, False if another write of the resource is in progress."""
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
            # Also after a rejection, which would otherwise repeat as fast as requests go.
            self._written[resource.metadata.name] = (resource.metadata.resource_version, self._clock())
