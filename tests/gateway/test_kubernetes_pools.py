"""Pools are resources: the gateway changes the fields of a request and keeps those set with kubectl."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from sandlot_gateway.backends.kubernetes.states import SidecarStates
from sandlot_gateway.control.pool_limits import MOST_POOLS
from sandlot_kube import paths
from sandlot_kube.template import Template

from tests.gateway.kubernetes_world import IMAGE, NEEDS_API_SERVER, TEMPLATE, World, pool_fields
from tests.waiting import until

pytestmark = NEEDS_API_SERVER


async def test_pools_are_resources(world: World) -> None:
    path = paths.pools(world.namespace, "default")
    async with world.gateway() as gateway:
        put = await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 3})
        assert put.status_code == 200, put.text
        spec = world.server.call("GET", path)["spec"]
        assert (spec["size"], spec["template"]["image"], spec["template"]["memory"]) == (3, IMAGE, 256 << 20)
        # What the gateway cannot say was said with kubectl, and stays.
        its = {"runtimeClass": "gvisor", "gpuCount": 2, "gpuType": "H100"}
        change = {"spec": {"size": None, "minSize": 1, "maxSize": 9, "template": its}}
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        backend = gateway.gateway.backend
        await until(lambda: backend.pools()[0].spec.template.runtime_class == "gvisor")
        assert backend.pools()[0].spec.size == 1
        again = await gateway.client.put("/api/v1/pools/default", json={"memory_gb": 1})
        assert again.status_code == 200, again.text
        told = again.json()
        assert (told["min_size"], told["max_size"], told["gpu_count"], told["gpu_type"]) == (1, 9, 2, "H100")
        kept = {**its, "image": IMAGE, "memory": 1 << 30, "pids": 256}
        spec = world.server.call("GET", path)["spec"]
        assert (spec.get("size"), spec["minSize"], spec["maxSize"]) == (None, 1, 9)
        assert {name: spec["template"][name] for name in kept} == kept
        assert (await gateway.client.put("/api/v1/pools/default", json={})).status_code == 200
        assert world.server.call("GET", path)["spec"] == spec
        # A size that is said is one; it ends autoscaling, also when it is what the pool has by chance.
        fixed = await gateway.client.put("/api/v1/pools/default", json={"size": 1})
        assert (fixed.json()["size"], fixed.json()["min_size"], fixed.json()["max_size"]) == (1, None, None)
        spec = world.server.call("GET", path)["spec"]
        assert (spec["size"], "minSize" in spec, "maxSize" in spec) == (1, False, False)
        assert {name: spec["template"][name] for name in kept} == kept
        assert "owner" not in spec
        given = await gateway.client.put(
            "/api/v1/pools/default", json={"image": IMAGE, "size": 2, "owner": "a.b"}
        )
        assert given.json()["owner"] == world.server.call("GET", path)["spec"]["owner"] == "a.b", given.text
        made = {**pool_fields(), "size": 0, "owner": "t"}
        assert (await gateway.client.put("/api/v1/pools/owned", json=made)).json()["owner"] == "t"
        assert (await gateway.client.delete("/api/v1/pools/owned")).status_code == 200
        bad = await gateway.client.put("/api/v1/pools/Bad_Name", json={**pool_fields(), "size": 1})
        assert (bad.status_code, bad.json()["errors"][0]["param"]) == (422, "name"), bad.text
        assert (await gateway.client.delete("/api/v1/pools/default")).status_code == 200
        assert (await gateway.client.delete("/api/v1/pools/default")).status_code == 404
        assert gateway.gateway.backend.pools() == []


async def test_a_pool_that_says_nothing_of_reuse_is_for_the_same_tenant_again(world: World) -> None:
    path = paths.pools(world.namespace, "default")
    usual = {"policy": "tenant", "max_uses": 100, "max_age": 3600.0}
    async with world.gateway() as gateway:

        async def put(**body: Any) -> dict[str, Any]:
            answer = await gateway.client.put("/api/v1/pools/default", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["reuse"]

        assert await put(**pool_fields(), size=0) == usual
        assert "reuse" not in world.server.call("GET", path)["spec"]
        assert await put(reuse={"policy": "never"}) == {**usual, "policy": "never"}
        # What differs from the default is in the resource, which the controller reads.
        stored = {"policy": "never", "maxUses": 100, "maxAge": 3600}
        assert world.server.call("GET", path)["spec"]["reuse"] == stored
        assert await put(size=1) == {**usual, "policy": "never"}
        assert await put(reuse={"policy": "tenant"}) == usual


async def test_a_pool_that_the_watch_does_not_show_yet_is_changed_as_it_is(world: World) -> None:
    path = paths.pools(world.namespace, "default")
    async with world.gateway(api_keys="key:alpha::operate,key-b:beta") as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 3, "owner": "beta"})
        pools = gateway.gateway.backend._pools  # the cache, as a watch that is behind leaves it
        stale = pools._pools["default"]
        change = {"spec": {"owner": "alpha", "template": {"pids": 64}}}
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        await until(lambda: pools.spec("default").owner == "alpha")
        pools.changed(stale)
        taken = await gateway.client.put(
            "/api/v1/pools/default", json={"size": 0}, headers={"Authorization": "Bearer key-b"}
        )
        assert (taken.status_code, taken.json()["errors"][0]["param"]) == (403, "name"), taken.text
        pools.deleted(stale)
        put = await gateway.client.put("/api/v1/pools/default", json={"image": IMAGE, "size": 4})
        assert (put.status_code, put.json()["pids"], put.json()["owner"]) == (200, 64, "alpha"), put.text
        world.server.call("DELETE", path)
        await until(lambda: pools.spec("default") is None)
        pools.changed(stale)
        gone = await gateway.client.put("/api/v1/pools/default", json={"memory_gb": 1})
        assert (gone.status_code, gone.json()["errors"][0]["param"]) == (422, "size"), gone.text


async def test_a_pools_runtime_class_is_that_of_its_sandboxes(world: World) -> None:
    kubelet = world.kubelet
    template = Template(
        **{**{n: getattr(TEMPLATE, n) for n in TEMPLATE.__struct_fields__}, "runtime_class": "gvisor"}
    )
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 1})
        change = {"spec": {"template": {"runtimeClass": "gvisor"}}}
        path = paths.pools(world.namespace, "default")
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        await until(lambda: gateway.gateway.backend.pools()[0].spec.template.runtime_class)
        await kubelet.pod(template, pool="default")
        await gateway.warm()
        answer = await gateway.client.post("/api/v1/sandbox", json={"pool": "default", "wait_seconds": 20})
        assert answer.json()["poolHit"] is True, answer.text


async def test_a_request_gives_a_pool_only_runtime_classes_that_the_operator_allows(world: World) -> None:
    path = paths.pools(world.namespace, "mine")
    keys = "key:alpha,key-ops:ops::operate"
    async with world.gateway(api_keys=keys, runtime_classes="gvisor, kata") as gateway:

        async def put(key: str = "key", **body: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"}
            return await gateway.client.put("/api/v1/pools/mine", json=body, headers=headers)

        def stored() -> str | None:
            return world.server.call("GET", path)["spec"]["template"].get("runtimeClass")

        for key in ("key", "key-ops"):
            for named in ("runc", "nvidia", "Kata", "-", "a..b", "a" * 254):
                refused = await put(key, **pool_fields(), size=0, runtime_class=named)
                assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "runtime_class")
        assert "gvisor, kata" in (await put(**pool_fields(), size=0, runtime_class="runc")).text
        assert gateway.gateway.backend.pools() == []
        made = await put(**pool_fields(), size=0, runtime_class="kata")
        assert (made.status_code, made.json()["runtime_class"], stored()) == (200, "kata", "kata"), made.text
        assert (await put(memory_gb=1)).json()["runtime_class"] == stored() == "kata"
        # An operator gave it this one; the tenant may keep it, not take it again.
        change = {"spec": {"template": {"runtimeClass": "nvidia"}}}
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        await until(lambda: gateway.gateway.backend.pools()[0].spec.template.runtime_class == "nvidia")
        assert (await put(runtime_class="nvidia", pids=64)).json()["runtime_class"] == "nvidia"
        left = await put(runtime_class="")
        assert (left.status_code, left.json()["runtime_class"], stored()) == (200, None, None), left.text
        assert (await put(runtime_class="nvidia")).status_code == 422


async def test_without_a_list_a_pool_has_the_charts_runtime_class(world: World) -> None:
    async with world.gateway() as gateway:
        body = {**pool_fields(), "size": 0, "runtime_class": "gvisor"}
        refused = await gateway.client.put("/api/v1/pools/mine", json=body)
        assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "runtime_class")
        made = await gateway.client.put("/api/v1/pools/mine", json={**body, "runtime_class": ""})
        assert (made.status_code, made.json()["runtime_class"]) == (200, None), made.text


async def test_without_slots_no_pod_is_looked_at_for_the_image_that_it_keeps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of the queue asks for all pools."""
    looked: list[str] = []

    def keeping_image(states: SidecarStates, pool: str) -> int:
        looked.append(pool)
        return 0

    monkeypatch.setattr(SidecarStates, "keeping_image", keeping_image)
    async with world.gateway() as gateway:
        await gateway.client.put("/api/v1/pools/default", json={**pool_fields(), "size": 3})
        await until(lambda: gateway.gateway.backend.pools())
        assert looked == []


async def test_concurrent_requests_give_a_tenant_no_more_pools_than_it_may_have(world: World) -> None:
    async with world.gateway(api_keys="key:alpha,key-few:few:2") as gateway:

        async def put(name: str, *, key: str = "key", size: int = 0) -> int:
            headers, body = {"Authorization": f"Bearer {key}"}, {**pool_fields(), "size": size}
            return (await gateway.client.put(f"/api/v1/pools/{name}", json=body, headers=headers)).status_code

        answers = await asyncio.gather(*(put(f"empty-{number}") for number in range(MOST_POOLS + 4)))
        assert [answers.count(status) for status in (200, 422)] == [MOST_POOLS, 4]
        answers = await asyncio.gather(*(put(f"warm-{number}", key="key-few", size=1) for number in range(4)))
        assert [answers.count(status) for status in (200, 422)] == [2, 2]


async def test_gpus_that_no_pod_could_have_name_the_field(world: World) -> None:
    async with world.gateway() as gateway:

        async def refused(**body: Any) -> tuple[int, str]:
            answer = await gateway.client.put("/api/v1/pools/gpus", json={"size": 0, **body})
            return answer.status_code, answer.json()["errors"][0]["param"]

        spaces = {"gpu_count": 1, "gpu_type": "NVIDIA H100"}
        assert await refused(**pool_fields(), **spaces) == (422, "gpu_type")
        assert await refused(**{**pool_fields(), "image": None}, gpu_count=1) == (422, "image")
        body = {"docker_image": IMAGE, "wait_seconds": 20, **spaces}
        answer = await gateway.client.post("/api/v1/sandbox", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "gpu_type"), answer.text
        good = {**pool_fields(), "size": 0, "gpu_count": 1, "gpu_type": "NVIDIA-H100"}
        assert (await gateway.client.put("/api/v1/pools/gpus", json=good)).status_code == 200
        # kubectl may have made one that is refused here: it shrinks all the same.
        change = {"spec": {"size": 2, "template": {"image": None}}}
        path = paths.pools(world.namespace, "gpus")
        world.server.call("PATCH", path, change, content_type="application/merge-patch+json")
        backend = gateway.gateway.backend
        await until(lambda: backend.pools()[0].spec.size == 2)
        assert await refused(size=1) == (422, "image")
        none = await gateway.client.put("/api/v1/pools/gpus", json={"size": 0})
        assert (none.status_code, none.json()["size"]) == (200, 0), none.text
