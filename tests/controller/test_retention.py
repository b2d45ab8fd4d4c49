"""An ended Sandbox that may not be deleted now is deleted later."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import msgspec
import pytest
from sandlot_controller.act import retention as retentions
from sandlot_controller.act.api import Api
from sandlot_controller.act.retention import Retention
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Sandbox

from tests.waiting import until


class Refusing:
    """Refuses the first deletions, as an API server does whose rules of access are not there yet."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.deleted: list[str] = []

    def now(self) -> float:
        return time.time()

    async def delete_period(self, period: str) -> None:
        self._answer()

    async def delete_sandbox(self, sandbox: Sandbox) -> None:
        self._answer()
        self.deleted.append(sandbox.metadata.name)

    def _answer(self) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise KubeError(status=403, reason="Forbidden", message="no")


@pytest.mark.parametrize("status", [{"endedIn": "2026-01-01T12:00Z"}, {"endedAt": "2026-01-01T12:00:30Z"}])
async def test_a_refused_deletion_is_repeated(
    monkeypatch: pytest.MonkeyPatch, status: dict[str, str]
) -> None:
    monkeypatch.setattr(retentions, "_AGAIN", 0.02)
    api = Refusing(3)
    retention = Retention(cast(Api, api), seconds=60.0)
    document = {"metadata": {"name": "sb-0"}, "spec": {"template": {"image": "a"}}, "status": status}
    retention.keep(msgspec.convert(document, Sandbox))
    task = asyncio.create_task(retention.run())
    try:
        await until(lambda: api.deleted == ["sb-0"])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class RefusesOne:
    """Refuses to delete the first one, and all of a minute at once."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.asked: list[str] = []

    def now(self) -> float:
        return time.time()

    async def delete_period(self, period: str) -> None:
        raise KubeError(status=self.status, message="no")

    async def delete_sandbox(self, sandbox: Sandbox) -> None:
        self.asked.append(sandbox.metadata.name)
        if sandbox.metadata.name == "sb-0":
            raise KubeError(status=self.status, message="no")


@pytest.mark.parametrize(
    ("status", "asked"), [(422, ["sb-0", "sb-1", "sb-0"]), (403, ["sb-0", "sb-0", "sb-0"])]
)
async def test_a_refusal_keeps_no_other_one_unless_it_is_of_all(
    monkeypatch: pytest.MonkeyPatch, status: int, asked: list[str]
) -> None:
    monkeypatch.setattr(retentions, "_AGAIN", 0.02)
    api = RefusesOne(status)
    retention = Retention(cast(Api, api), seconds=60.0)
    ended = {"endedIn": "2026-01-01T12:00Z"}
    kept = [
        msgspec.convert(
            {"metadata": {"name": name}, "spec": {"template": {"image": "a"}}, "status": ended}, Sandbox
        )
        for name in ("sb-0", "sb-1")
    ]
    for one in kept:
        retention.keep(one)
    task = asyncio.create_task(retention.run())
    try:
        await until(lambda: "sb-1" in api.asked or status == 403)
        if status == 422:
            retention.gone(kept[1])  # as the watch says
        await until(lambda: len(api.asked) >= 3)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert api.asked[:3] == asked
