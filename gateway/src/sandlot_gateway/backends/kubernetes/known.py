"""The Sandbox resources as this gateway last saw or wrote them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_kube.ends import Ended


@dataclass(frozen=True, slots=True)
class Known:
    """One Sandbox resource."""

    name: str
    pod: InstanceId
    owner: SandboxId | None
    ended: Ended | None
    made_for: SandboxId | None = None  # the sandbox that the pod was started for
    told: bool = False  # whether the resource itself names the owner

    @property
    def claimed(self) -> bool:
        return self.owner is not None


class KnownSandboxes:
    """Sandbox resources by name, by pod and by owner."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._by_pod: dict[InstanceId, str] = {}
        self._by_owner: dict[SandboxId, str] = {}
        self._wanted: dict[SandboxId, asyncio.Event] = {}  # owner -> event for those that wait for its record

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def names(self) -> list[str]:
        return list(self._known)

    def get(self, name: str) -> Known | None:
        return self._known.get(name)

    def of_pod(self, instance_id: InstanceId) -> Known | None:
        return self._known.get(self._by_pod.get(instance_id, ""))

    def name_of(self, sandbox_id: SandboxId) -> str | None:
        """Return the name of the resource that has this owner."""
        return self._by_owner.get(sandbox_id)

    async def wait_for(self, sandbox_id: SandboxId, *, timeout: float) -> None:
        """Wait until a resource has this owner, `timeout` seconds at most."""
        event = self._wanted.setdefault(sandbox_id, asyncio.Event())
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            self._wanted.pop(sandbox_id, None)

    def keep(self, known: Known) -> None:
        self._known[known.name] = known
        self._by_pod[known.pod] = known.name
        if known.owner is not None:
            self._by_owner[known.owner] = known.name
            if (event := self._wanted.pop(known.owner, None)) is not None:
                event.set()

    def remove(self, name: str) -> Known | None:
        known = self._known.pop(name, None)
        if known is None:
            return None
        if self._by_pod.get(known.pod) == name:
            del self._by_pod[known.pod]
        if known.owner is not None and self._by_owner.get(known.owner) == name:
            del self._by_owner[known.owner]
        return known
