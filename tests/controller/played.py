"""Sidecars and the deletion of pods as a part of the controller sees them, played in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from sandlot_contract.ids import SandboxId
from sandlot_controller.act.pod_deletion import PodDeletion
from sandlot_controller.act.sidecars import EndAnswer, Owner, Sidecars, SidecarUnreachable, SidecarUntrusted
from sandlot_controller.settings import Settings
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.world.world import World
from sandlot_kube.objects import Pod, Sandbox

POD = "i-1"


class PlayedSidecars:
    """`owner_id` owns every pod; `silent`: none answers, and `while_asked` happens before that is known.

    `untrusted`: they and the controller refuse each other's certificates.
    """

    def __init__(self) -> None:
        self.owner_id: str | None = None
        self.silent = False
        self.untrusted = False
        self.while_asked: list[Callable[[], None]] = []
        self.asked = 0
        self.ended: list[SandboxId | None] = []

    async def owner(self, address: str, *, token: str) -> Owner | None:
        self.asked += 1
        await asyncio.sleep(0)
        for happens in self.while_asked:
            happens()
        self._refuse()
        if self.silent:
            raise SidecarUnreachable("no answer")
        return None if self.owner_id is None else Owner(SandboxId(self.owner_id))

    async def end(self, address: str, *, only_of: SandboxId | None = None, **_: Any) -> EndAnswer:
        self._refuse()
        self.ended.append(only_of)
        return EndAnswer.ENDED

    def _refuse(self) -> None:
        if self.untrusted:
            raise SidecarUntrusted("TLS: certificate has expired")


class Deletion:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    def is_asked(self, pod: Pod) -> bool:
        return pod.metadata.name in self.deleted

    def delete(self, pod: Pod) -> None:
        self.deleted.append(pod.metadata.name)

    def delete_ended(self, pod: Pod, answer: EndAnswer) -> None:
        assert answer is EndAnswer.ENDED
        self.delete(pod)


class Part:
    """What one part of the controller stands on, at the time `now`: a world with one pod, its sidecar, deletions."""

    def __init__(self, settings: Settings, *, annotations: dict[str, str] | None = None) -> None:
        self.now = 0.0
        self.world = World(clock=lambda: self.now)
        self.sidecars = PlayedSidecars()
        self.deletion = Deletion()
        # arguments of the part
        self.given: dict[str, Any] = {
            "deletion": cast("PodDeletion", self.deletion),
            "settings": settings,
            "tokens": InstanceTokens.from_file(settings.key_file),
            "sidecars": cast("Sidecars", self.sidecars),
        }
        body = {
            "metadata": {"name": POD, "uid": POD, "annotations": annotations or {}},
            "spec": {},
            "status": {"podIP": "127.0.0.1"},
        }
        self.world.pod_changed(msgspec.convert(body, Pod))

    def record(self, generation: int, *, pod: str = POD, phase: str | None = None) -> None:
        name = f"sb-{generation}"
        body = {
            "metadata": {"name": f"{pod}-{name}", "uid": f"{pod}-{name}"},
            "spec": {
                "template": {"image": "x"},
                "podName": pod,
                "generation": generation,
                "sandboxId": name,
            },
            "status": {} if phase is None else {"phase": phase},
        }
        self.world.sandbox_changed(msgspec.convert(body, Sandbox))


def settings_in(directory: Path, **more: Any) -> Settings:
    key = directory / "master"
    key.write_bytes(b"k" * 32)
    return Settings(namespace="s", key_file=key, webhook_url="http://g/", sidecar_image="s", **more)


@asynccontextmanager
async def running(loop: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(loop)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
