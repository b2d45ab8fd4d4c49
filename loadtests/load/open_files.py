"""The open files of gateways and controllers, as their metrics told last: a sample waits for no pod."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable

from sandlot_kube.errors import KubeError

_log = logging.getLogger(__name__)

_OPEN_FILES = re.compile(r"^process_open_fds (\S+)$", re.MULTILINE)

Part = tuple[str, int, str]  # component, port and name of a pod


class OpenFiles:
    """`metrics` returns the metrics of a pod's port, and may raise KubeError."""

    def __init__(self, metrics: Callable[[str, int], Awaitable[str]]) -> None:
        self._metrics = metrics
        self._last: dict[str, int] = {}  # by pod
        self._asking: dict[str, asyncio.Task[None]] = {}

    def ask(self, parts: Iterable[Part]) -> None:
        """Begin to ask those that are not being asked; returns at once."""
        for _, port, name in parts:
            if name not in self._asking:
                task = self._asking[name] = asyncio.create_task(self._ask(name, port))
                task.add_done_callback(lambda _, name=name: self._asking.pop(name))

    def counts(self, parts: Iterable[Part]) -> dict[str, int]:
        """Return what was told last, by component, without pods that have never responded."""
        found: dict[str, int] = {}
        for part, _, name in parts:
            if name in self._last:
                found[part] = found.get(part, 0) + self._last[name]
        return found

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, name: str, port: int) -> None:
        try:
            if told := _OPEN_FILES.search(await self._metrics(name, port)):
                self._last[name] = int(float(told[1]))
        except KubeError:
            return
        except Exception:
            _log.exception("could not read the metrics of pod %s", name)
