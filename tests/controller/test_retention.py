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
    await until(lambda: api.deleted == ["sb-0"], seconds=20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
