"""While a gateway ends, it serves clients over TLS until it has brought up what it has begun, theirs included."""

from __future__ import annotations

import asyncio

from tests.certificates import issued
from tests.gateway.kubernetes_world import FIELDS, NEEDS_API_SERVER, TEMPLATE, World
from tests.gateway.peer_gateways import Killed, address, claimed, cold_names
from tests.waiting import until

pytestmark = NEEDS_API_SERVER

WAITING = "touch /tmp/began; until [ -e /tmp/go ]; do sleep 0.05; done; echo done"


async def test_tls_clients_are_served_until_the_last_create_of_any_is_brought_up(world: World) -> None:
    kubelet = world.kubelet
    host = address()
    certificate = issued(world.directory, host)
    tls = {"tls_cert": certificate.chain, "tls_key": certificate.key, "tls_port": 18644}
    async with (
        world.gateway("b", host=host, port=18643, peers=f"{host}:18642") as other,
        Killed(world, host=host, port=18642, peers=f"{host}:18643", drain=600, **tls) as one,
        certificate.client(f"https://{host}:18644", api_key="key", http2=True) as client,
    ):
        body = {**FIELDS, "wait_seconds": 20}
        ran = (await client.post("/api/v1/sandbox", json=body)).json()
        while ran["status"] == "PENDING":  # a cold start may take longer than a create waits
            ran = (await client.get(f"/api/v1/sandbox/{ran['id']}")).json()
        assert ran["status"] == "RUNNING", ran
        command = asyncio.create_task(
            client.post(f"/sbx/{ran['id']}/exec", json={"command": WAITING, "timeout": 600})
        )

        async def began() -> bool:
            return "began" in await other.run(ran["id"], "ls /tmp")

        await until(began)
        kubelet.make_cold = False
        before = set(await cold_names(world))
        plain = (await one.create(idempotency_key="plain", wait_seconds=0)).json()
        assert plain["status"] == "PENDING", plain
        one.terminate()
        await until(one.drains)
        late = (await client.post("/api/v1/sandbox", json={**body, "idempotency_key": "late"})).json()
        assert late["status"] == "PENDING", late
        assert (await other.create(idempotency_key="late", wait_seconds=0)).json()["id"] == late["id"]
        assert (await client.get("/api/v1/sandbox")).status_code == 200

        for name in set(await cold_names(world, count=len(before) + 2)) - before:
            await kubelet.pod(TEMPLATE, cold=name)

        async def is_sent_away() -> bool:
            told = await client.get("/api/v1/sandbox")
            return (told.status_code, told.headers.get("retry-after")) == (503, "1")

        await until(is_sent_away)
        assert not command.done()
        await other.run(ran["id"], "touch /tmp/go")
        assert (await command).json()["stdout"] == "done\n"
        assert await one.ended() == 0

        async def all_run() -> bool:  # once the watch has told the other gateway
            told = [await other.get(made["id"]) for made in (ran, plain, late)]
            return {each["status"] for each in told} == {"RUNNING"}

        await until(all_run)
        assert sorted(await claimed(world)) == sorted(made["id"] for made in (ran, plain, late))
