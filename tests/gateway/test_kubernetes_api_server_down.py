"""The API server is down or hangs: warm claims go on, cold starts get a 503, records are written later."""

from __future__ import annotations

import asyncio

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World, pool_fields
from tests.ports import free_port
from tests.waiting import SECONDS, until

pytestmark = NEEDS_API_SERVER


async def test_without_an_api_server_warm_claims_go_on_and_cold_ones_are_refused(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instances = [await kubelet.pod(TEMPLATE, pool="default") for _ in range(2)]
        await gateway.warm(2)
        first = await gateway.made()
        await asyncio.to_thread(world.server.stop)

        assert await gateway.run(first["id"], "echo on") == "on\n"
        second = await gateway.made()
        assert second["poolHit"] is True
        assert await gateway.run(second["id"], "echo too") == "too\n"
        refused = await gateway.create()
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert "API server" in refused.text
        at_once = await gateway.create(wait_seconds=0)
        assert at_once.status_code == 503, at_once.text
        assert (await gateway.client.delete(f"/api/v1/sandbox/{first['id']}")).status_code == 200
        assert (await gateway.client.get("/readyz")).status_code == 200

        await asyncio.to_thread(world.server.start)
        await kubelet.until(lambda: all(kubelet.of_pod(instance) for instance in instances))
        await kubelet.until(lambda: kubelet.sandboxes[first["id"]].status.verdict)
        assert (await kubelet.record(second["id"])).status.verdict is None
        third = None
        async with asyncio.timeout(SECONDS):
            while third is None:
                answer = await gateway.create()
                assert answer.status_code in (201, 503), answer.text
                if answer.status_code == 201:
                    third = await gateway.settled(answer)
                else:
                    await asyncio.sleep(float(answer.headers["retry-after"]))
        assert third["status"] == "RUNNING"
        assert await gateway.run(third["id"], "echo healed") == "healed\n"
        assert await gateway.run(second["id"], "echo still") == "still\n"


async def test_an_api_server_that_hangs_holds_a_cold_create_no_longer_than_it_may(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway(backend={"launch_timeout": 0.5}) as gateway:
        await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        with world.server.frozen():
            made = await gateway.made()
            assert await gateway.run(made["id"], "echo on") == "on\n"
            refused = await gateway.create()
            assert refused.status_code == 503, refused.text
        await kubelet.until(lambda: made["id"] in kubelet.sandboxes)
        # What it may have taken before it hung is taken away again.
        await kubelet.until(lambda: list(kubelet.sandboxes) == [made["id"]])


async def test_without_an_api_server_a_claim_is_known_at_any_gateway(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway("a") as one, world.gateway("b") as other:
        for _ in range(3):
            await kubelet.pod(TEMPLATE, pool="default")
        for gateway in (one, other):
            await gateway.warm(3)
        with world.server.frozen():
            made = await one.made()
            assert await other.run(made["id"], "echo other") == "other\n"
            # Another one so soon is looked for as well.
            next_one = await one.made()
            assert await other.run(next_one["id"], "echo next") == "next\n"
            # The one that is still warm is there for a claim.
            second = await other.made()
            assert await one.run(second["id"], "echo one") == "one\n"


async def test_a_gateway_that_starts_without_an_api_server_hears_of_its_sandboxes(world: World) -> None:
    kubelet, port = world.kubelet, free_port()
    async with world.gateway(webhook_port=port) as gateway:
        await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
    await asyncio.to_thread(world.server.stop)
    async with world.gateway(backend={"sync_timeout": 0.5}, webhook_port=port) as gateway:
        await until(lambda: gateway.gateway.directory.get(made["id"]))
        assert await gateway.run(made["id"], "echo back") == "back\n"
        assert gateway.gateway.backend.stats()["notes"]


async def test_a_record_that_nobody_wrote_is_written_by_who_hears_the_heartbeat(world: World) -> None:
    kubelet, port = world.kubelet, free_port()
    async with world.gateway(webhook_port=port) as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        await asyncio.to_thread(world.server.stop)
        made = await gateway.made(labels=["late"])
    await asyncio.to_thread(world.server.start)
    async with world.gateway("another", backend={"late_record": 0.0}, webhook_port=port):
        record = await kubelet.until(lambda: kubelet.of_pod(instance))
        assert (record.spec.sandbox_id, record.spec.labels) == (made["id"], ["late"])


async def test_without_an_api_server_pools_cannot_be_changed(world: World) -> None:
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 0})
        await asyncio.to_thread(world.server.stop)
        for answer in (
            await gateway.client.put("/api/v1/pools/default", json={"size": 1}),
            await gateway.client.put("/api/v1/pools/new", json={**pool_fields(), "size": 1}),
            await gateway.client.delete("/api/v1/pools/default"),
        ):
            assert answer.status_code == 503, answer.text
            assert "API server" in answer.text
            assert int(answer.headers["retry-after"]) >= 1
