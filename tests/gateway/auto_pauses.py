"""What the tests of pauses at the timeout have in common: a gateway, sandboxes to be paused, and what became of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandlot_gateway.e2b import deadlines

from tests.gateway.conftest import KEY, Running, running
from tests.gateway.machine import Machine
from tests.gateway.sidecars import StubSidecar
from tests.waiting import until


@asynccontextmanager
async def gateway(state_dir: Path, machine: Machine) -> AsyncIterator[Running]:
    options = {"e2b": True, "e2b_templates": ["base=host"], "checkpoint_dir": machine.directory / "kept"}
    async with running(state_dir, machine, **options) as box:
        yield box


def headers(key: str = KEY) -> dict[str, str]:
    return {"X-API-Key": key}


async def made(box: Running, key: str = KEY) -> tuple[str, StubSidecar]:
    """A sandbox that is to be paused in an hour, and its sidecar."""
    body = {"templateID": "base", "timeout": 3600, "autoPause": True}
    answer = await box.client.post("/e2b/v2/sandboxes", json=body, headers=headers(key))
    assert answer.status_code == 201, answer.text
    sandbox_id = answer.json()["sandboxID"]
    sidecar = box.machine.of_sandbox(sandbox_id)
    sidecar.deadline_at = time.time() + 3600 + deadlines.MARGIN
    return sandbox_id, sidecar


async def set_timeout(box: Running, sandbox_id: str, seconds: int, key: str = KEY) -> None:
    path = f"/e2b/sandboxes/{sandbox_id}/timeout"
    answer = await box.client.post(path, json={"timeout": seconds}, headers=headers(key))
    assert answer.status_code == 204, answer.text


async def state(box: Running, sandbox_id: str, key: str = KEY) -> str | None:
    answer = await box.client.get(f"/e2b/sandboxes/{sandbox_id}", headers=headers(key))
    assert answer.status_code in (200, 404), answer.text
    return answer.json().get("state")


async def paused(box: Running, sandbox_id: str, key: str = KEY) -> None:
    async def is_paused() -> bool:
        return await state(box, sandbox_id, key) == "paused"

    await until(is_paused)


async def copies(box: Running, sandbox_id: str, key: str = KEY) -> list[str]:
    path = f"/api/v1/sandbox/{sandbox_id}/checkpoints"
    answer = await box.client.get(path, headers=box.as_tenant(key))
    return [each["state"] for each in answer.json()["checkpoints"]]
