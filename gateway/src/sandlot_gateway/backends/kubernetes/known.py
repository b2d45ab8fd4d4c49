"""The Sandbox resources as this gateway last saw or wrote them."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandlot_contract.ids import InstanceId, SandboxId
from sandlot_kube import ends
from sandlot_kube.ends import Ended
from sandlot_kube.objects import Sandbox

from .writes import differ, uid_in


@dataclass(frozen=True, slots=True)
class Known:
    """One Sandbox resource."""

    name: str
    pod: InstanceId
    owner: SandboxId | None = None
    ended: Ended | None = None
    made_for: SandboxId | None = None  # the sandbox that the pod was started for
    told: bool = False  # whether the resource itself names the owner
    generation: int | None = None  # of a pod that runs one sandbox after the other
    uid: str = ""  # as far as it was told

    @classmethod
    def shown(cls, sandbox: Sandbox, *, before: Known | None) -> Known:
        """Return what the watch shows; `before`: what was known of it."""
        spec = sandbox.spec
        owner = spec.sandbox_id or sandbox.status.sandbox_id
        told = owner is not None
        if owner is None and before is not None and before.owner == spec.made_for:
            owner = before.owner  # by its sidecar's word
        return cls(
            sandbox.metadata.name,
            sandbox.instance_id,
            owner,
            ends.of(sandbox),
            made_for=spec.made_for,
            told=told,
            generation=spec.generation,
            uid=sandbox.metadata.uid,
        )

    @property
    def claimed(self) -> bool:
        return self.owner is not None


class Write:
    """A write to one resource that is on its way, and the uids of those of its name that were deleted meanwhile."""

    def __init__(self) -> None:
        self.uid = ""  # of the resource in the answer, if that tells it
        self.deleted: set[str] = set()

    def answered(self, answer: bytes) -> None:
        """Note the answer. Raises KubeUnreachable if it is not the API server's."""
        self.uid = uid_in(answer)

    def is_outdated(self) -> bool:
        """Return whether the resource in the answer is deleted. An unknown uid may be that of any."""
        return any(not differ(self.uid, uid) for uid in self.deleted)


class KnownSandboxes:
    """Sandbox resources by name, by pod and by owner."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._by_pod: dict[InstanceId, dict[int, str]] = {}  # by generation, 0 without one
        self._by_owner: dict[SandboxId, str] = {}
        self._writes: dict[str, list[Write]] = {}  # those that are on their way, by name
        self._listed: list[Known] = []  # those known when the last list began
        self._wanted: dict[
            SandboxId, list[asyncio.Event]
        ] = {}  # owner -> one event for each that waits for it

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str, *, uid: str = "") -> Known | None:
        """Return what is known of a resource; with the `uid`: unless it is that of another one of this name."""
        known = self._known.get(name)
        return None if known is not None and differ(known.uid, uid) else known

    def of_pod(self, instance_id: InstanceId, generation: int | None = None) -> Known | None:
        """Return the pod's resource: of this generation, or else (None) of the latest one."""
        names = self._by_pod.get(instance_id)
        if names is None:
            return None
        return self._known.get(names.get(max(names) if generation is None else generation, ""))

    def before(self, instance_id: InstanceId, generation: int) -> list[Known]:
        """Return the resources of this pod's earlier generations."""
        names = self._by_pod.get(instance_id, {})
        return [self._known[name] for before, name in names.items() if 0 < before < generation]

    def name_of(self, sandbox_id: SandboxId) -> str | None:
        """Return the name of the resource that has this owner."""
        return self._by_owner.get(sandbox_id)

    async def wait_for(self, sandbox_id: SandboxId, *, timeout: float) -> None:
        """Wait until a resource has this owner, `timeout` seconds at most."""
        event = asyncio.Event()
        waiting = self._wanted.setdefault(sandbox_id, [])
        waiting.append(event)
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            waiting.remove(event)
            if not waiting and self._wanted.get(sandbox_id) is waiting:
                del self._wanted[sandbox_id]

    @contextmanager
    def writing(self, name: str) -> Iterator[Write]:
        """Follow deletions while a write is on its way: its answer may come after the watch has shown one."""
        write = Write()
        writes = self._writes.setdefault(name, [])
        writes.append(write)
        try:
            yield write
        finally:
            writes.remove(write)
            if not writes:
                del self._writes[name]

    def keep(self, known: Known) -> None:
        before = self._known.get(known.name)
        if before is not None and (before.pod, before.generation) != (known.pod, known.generation):
            self._leave_pod(before)
        self._known[known.name] = known
        self._by_pod.setdefault(known.pod, {})[known.generation or 0] = known.name
        if known.owner is not None:
            self._by_owner[known.owner] = known.name
            for event in self._wanted.get(known.owner, ()):
                event.set()

    def remove(self, name: str, *, uid: str = "") -> Known | None:
        """Note that the resource is gone, and return what was known of it; `uid`: its own, if known."""
        known = self._known.get(name)
        for write in self._writes.get(name, ()):
            write.deleted.add(uid or (known.uid if known is not None else ""))
        if known is None or differ(known.uid, uid):
            return None  # what is known is a later resource of that name
        del self._known[name]
        self._leave_pod(known)
        if known.owner is not None and self._by_owner.get(known.owner) == name:
            del self._by_owner[known.owner]
        return known

    def listing(self) -> None:
        """Note what a list that begins should show."""
        self._listed = list(self._known.values())

    def missing(self, names: Container[str]) -> list[Known]:
        """Note that those are gone which the list, which has these `names`, should show; return what was known."""
        gone = [self.remove(one.name, uid=one.uid) for one in self._listed if one.name not in names]
        return [known for known in gone if known is not None]

    def _leave_pod(self, known: Known) -> None:
        names, generation = self._by_pod.get(known.pod, {}), known.generation or 0
        if names.get(generation) == known.name:
            del names[generation]
            if not names:
                del self._by_pod[known.pod]
