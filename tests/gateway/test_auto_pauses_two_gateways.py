"""A pause at the timeout that two gateways see due at the same time: one of them writes it, and both have it."""

from __future__ import annotations

import pytest
from sandlot_gateway.e2b import auto_pause

from tests.gateway.kubernetes_world import IMAGE, NEEDS_API_SERVER, Running, World
from tests.gateway.peer_gateways import two_peers
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

HEADERS = {"X-API-Key": "key"}


async def test_one_of_two_gateways_pauses_a_sandbox(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_pause, "_TICK", 0.05)
    monkeypatch.setattr(auto_pause, "_ASK_AGAIN", 0.1)
    options = {"e2b": True, "e2b_templates": [f"base={IMAGE}"], "checkpoint_dir": world.directory / "kept"}
    async with two_peers(world, **options) as (one, other):
        body = {"templateID": "base", "timeout": 600, "autoPause": True}
        made = await one.client.post("/e2b/v2/sandboxes", json=body, headers=HEADERS)
        assert made.status_code == 201, made.text
        sandbox_id = made.json()["sandboxID"]
        await one.run(sandbox_id, "echo here > /file")
        await until(lambda: other.gateway.directory.find(sandbox_id))
        path = f"/e2b/sandboxes/{sandbox_id}"
        moved = await one.client.post(f"{path}/timeout", json={"timeout": 0}, headers=HEADERS)
        assert moved.status_code == 204, moved.text

        async def paused(gateway: Running) -> bool:
            return (await gateway.client.get(path, headers=HEADERS)).json().get("state") == "paused"

        for gateway in (one, other):
            await until(lambda gateway=gateway: paused(gateway))
        kept = await other.client.get(f"/api/v1/sandbox/{sandbox_id}/checkpoints")
        assert [each["state"] for each in kept.json()["checkpoints"]] == ["DURABLE"], kept.text
        again = await other.client.post(f"{path}/connect", json={"timeout": 600}, headers=HEADERS)
        assert again.status_code == 201, again.text
        found = other.gateway.directory.current(sandbox_id, "alpha")
        assert found is not None
        assert await other.run(found.id, "cat /file") == "here\n"
