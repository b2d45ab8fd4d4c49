"""The runtime class of sandboxes that are like another one: what its pool has now, or what the operator still allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import PoolSpec

from tests.gateway.conftest import KEY, Running, running
from tests.gateway.machine import Machine

HEADERS = {"X-API-Key": KEY}
POOL = PoolSpec("mine", Template(image="host", runtime_class="kata"), 0)


async def forked(box: Running, sandbox_id: str) -> str:
    answer = await box.client.post(f"/api/v1/sandbox/{sandbox_id}/fork", json={"count": 1})
    assert answer.status_code == 201, answer.text
    return answer.json()["sandboxes"][0]["id"]


async def forked_over_e2b(box: Running, sandbox_id: str) -> str:
    answer = await box.client.post(f"/e2b/sandboxes/{sandbox_id}/fork", json={"count": 1}, headers=HEADERS)
    assert answer.status_code == 201, answer.text
    return answer.json()[0]["sandbox"]["sandboxID"]


async def continued(box: Running, sandbox_id: str) -> str:
    path = f"/e2b/sandboxes/{sandbox_id}"
    paused = await box.client.post(f"{path}/pause", json={}, headers=HEADERS)
    assert paused.status_code == 204, paused.text
    answer = await box.client.post(f"{path}/connect", json={}, headers=HEADERS)
    assert answer.status_code == 201, answer.text
    found = box.gateway.directory.current(SandboxId(sandbox_id), "alpha")
    assert found is not None
    return found.id


@pytest.mark.parametrize("copied", [forked, forked_over_e2b, continued])
@pytest.mark.parametrize(
    ("now", "allowed", "has"),
    [
        (POOL, [], "kata"),  # an operator gave the pool one that requests may not name
        (replace(POOL, template=replace(POOL.template, runtime_class=None)), ["kata"], None),
        (replace(POOL, template=replace(POOL.template, runtime_class="gvisor")), ["kata"], "gvisor"),
        (replace(POOL, owner="beta"), [], None),
        (None, [], None),
        (None, ["kata"], "kata"),
    ],
    ids=["kept", "withdrawn", "other", "taken", "gone", "gone_and_allowed"],
)
async def test_a_copy_has_no_runtime_class_that_was_withdrawn(
    copied: Any, now: PoolSpec | None, allowed: list[str], has: str | None, state_dir: Path, machine: Machine
) -> None:
    options = {"e2b": True, "e2b_templates": ["base=host"], "checkpoint_dir": machine.directory / "kept"}
    async with running(state_dir, machine, runtime_classes=allowed, **options) as box:
        await box.backend.set_pool(POOL)
        made = await box.client.post("/api/v1/sandbox", json={"pool": "mine"})
        assert made.status_code == 201, made.text
        if now is None:
            await box.backend.delete_pool("mine")
        else:
            await box.backend.set_pool(now)
        sandbox_id = await copied(box, made.json()["id"])
        instance = machine.instances[machine.of_sandbox(sandbox_id).instance_id]
        assert instance.template.runtime_class == has
