"""One gateway with the Kubernetes backend: warm claims, cold starts, and how it learns of instances."""

from __future__ import annotations

from tests.gateway.kubernetes_world import NEEDS_API_SERVER, TEMPLATE, World, pool_fields
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_a_warm_claim_gets_its_record_and_a_delete_its_end(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made(labels=["one", "two"], environment_vars={"A": "b"})
        assert made["poolHit"] is True
        assert await gateway.run(made["id"], "echo $A") == "b\n"
        record = await kubelet.until(lambda: kubelet.of_pod(instance))
        assert record.metadata.name == made["id"]
        spec = record.spec
        assert (spec.pod_name, spec.sandbox_id, spec.tenant) == (instance, made["id"], "alpha")
        assert (spec.labels, spec.template, spec.state) == (["one", "two"], TEMPLATE, "Running")
        assert (await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")).status_code == 200
        assert await kubelet.until(lambda: kubelet.sandboxes[made["id"]].status.verdict) == "deleted"
        assert kubelet.sandboxes[made["id"]].status.ended_at is not None
        await until(lambda: gateway.gateway.backend.stats()["instances"] == 0)
        assert (await gateway.get(made["id"]))["status"] == "TERMINATED"


async def test_a_cold_start_is_asked_for_by_a_sandbox_of_the_pods_name(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        made = await gateway.made(labels=["cold"])
        assert made["poolHit"] is False
        assert await gateway.run(made["id"], "echo hello") == "hello\n"
        await kubelet.until(lambda: [s for s in kubelet.sandboxes.values() if s.spec.made_for == made["id"]])
        [(name, sandbox)] = kubelet.sandboxes.items()
        assert name.startswith("i-")
        assert (sandbox.spec.pod_name, sandbox.spec.tenant, sandbox.spec.labels) == (None, "alpha", ["cold"])
        await gateway.client.delete(f"/api/v1/sandbox/{made['id']}")
        await kubelet.until(lambda: kubelet.sandboxes[name].status.verdict)
        assert list(kubelet.sandboxes) == [name]


async def test_an_instance_is_known_by_its_webhook_alone(world: World) -> None:
    """Its pod has no object, so no watch can show it; DNS has no name for it either."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 1})
        sidecar = await kubelet.sidecar(TEMPLATE)
        await gateway.warm()
        made = await gateway.made()
        assert await gateway.run(made["id"], "echo webhook") == "webhook\n"
        instance = gateway.gateway.backend.instance(sidecar.instance_id)
        assert instance is not None
        assert instance.address == f"{sidecar.ip}:8700"


async def test_an_instance_is_known_by_its_pod_alone(world: World) -> None:
    """Its sidecar tells nobody anything."""
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        kubelet.webhook = None
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        made = await gateway.made()
        assert await gateway.run(made["id"], "echo watch") == "watch\n"
        await kubelet.until(lambda: kubelet.of_pod(instance))


async def test_a_warm_pod_that_goes_away_is_offered_to_nobody(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway() as gateway:
        instance = await kubelet.pod(TEMPLATE, pool="default")
        await gateway.warm()
        await kubelet.delete_pod(instance)
        await until(lambda: not len(gateway.gateway.supply.slots.warm))
        assert gateway.gateway.backend.instance(instance) is None


async def test_a_cold_start_nobody_waits_for_any_more_is_taken_away(world: World) -> None:
    kubelet = world.kubelet
    async with world.gateway(spare_seconds=0.2) as gateway:
        answer = await gateway.create(wait_seconds=0)
        await kubelet.until(lambda: kubelet.sandboxes)
        await gateway.client.delete(f"/api/v1/sandbox/{answer.json()['id']}")
        # That of the promise stays for a while, ended.
        await kubelet.until(lambda: list(kubelet.sandboxes) == [answer.json()["id"]])
        assert (await kubelet.record(answer.json()["id"])).status.verdict == "deleted"
        await until(lambda: not kubelet.sidecars)
