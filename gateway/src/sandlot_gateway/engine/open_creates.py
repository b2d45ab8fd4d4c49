"""What this gateway does for each create without an outcome: it brings it up, or follows another gateway that does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from sandlot_contract.ids import SandboxId

_log = logging.getLogger(__name__)


class Part(Enum):
    BRINGS_UP = 1
    LOOKS = 2  # for another gateway that has it, since the claim was lost here; answers for it meanwhile
    MAY_GO_ON = 3  # follows it, and knows no other gateway that brings it up
    FOLLOWS = 4  # another gateway brings it up


@dataclass(slots=True)
class _Open:
    part: Part
    secrets: dict[str, str]


class OpenCreates:
    def __init__(self) -> None:
        self._open: dict[SandboxId, _Open] = {}
        self._changed = asyncio.Event()

    def begin(self, sandbox_id: SandboxId, part: Part, *, secrets: dict[str, str]) -> None:
        """Take this part, in place of an earlier one."""
        self._open[sandbox_id] = _Open(part, secrets)
        self._changed.set()

    def follow_as(self, sandbox_id: SandboxId, part: Part) -> None:
        """Change the part of a create that is followed."""
        if self.follows(sandbox_id):
            self._open[sandbox_id].part = part
            self._changed.set()

    def brought_up(self, sandbox_id: SandboxId) -> None:
        """End a bring-up, unless the create is followed by now."""
        if self.brings_up(sandbox_id):
            self._end(sandbox_id)

    def followed(self, sandbox_id: SandboxId) -> None:
        """End following it, unless this gateway brings it up by now."""
        if self.follows(sandbox_id):
            self._end(sandbox_id)

    def _end(self, sandbox_id: SandboxId) -> None:
        del self._open[sandbox_id]
        self._changed.set()

    def secrets(self, sandbox_id: SandboxId) -> dict[str, str] | None:
        found = self._open.get(sandbox_id)
        return None if found is None else found.secrets

    def brings_up(self, sandbox_id: SandboxId) -> bool:
        return self._part(sandbox_id) is Part.BRINGS_UP

    def works_on(self, sandbox_id: SandboxId) -> bool:
        """Return whether this gateway answers others that it has the sandbox."""
        return self._part(sandbox_id) in (Part.BRINGS_UP, Part.LOOKS)

    def follows(self, sandbox_id: SandboxId) -> bool:
        return self._part(sandbox_id) not in (None, Part.BRINGS_UP)

    def those(self, *parts: Part) -> list[SandboxId]:
        return [sandbox_id for sandbox_id, one in self._open.items() if one.part in parts]

    def _part(self, sandbox_id: SandboxId) -> Part | None:
        found = self._open.get(sandbox_id)
        return None if found is None else found.part

    async def settled(self, *, timeout: float) -> None:
        """Wait until no create is left that only this gateway brings up or may go on with, `timeout` seconds at most."""
        ours = Part.BRINGS_UP, Part.LOOKS, Part.MAY_GO_ON
        await self._until(lambda: not self.those(*ours), timeout=timeout)
        if left := self.those(*ours):
            _log.warning("%d pending creates are given up", len(left))

    async def done_with(self, sandbox_ids: Iterable[SandboxId], *, timeout: float) -> None:
        """Wait until this gateway brings up none of them, `timeout` seconds at most."""
        await self._until(lambda: not any(map(self.brings_up, sandbox_ids)), timeout=timeout)

    async def _until(self, so: Callable[[], bool], *, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not so():
                    self._changed.clear()
                    await self._changed.wait()
