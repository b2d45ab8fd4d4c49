"""Pools over the control routes: set, changed, removed, preferred by a create, and counted in metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import PoolSpec, Reuse

from tests.gateway.conftest import API, Running
from tests.waiting import until


async def test_pools_stats_and_metrics(box: Running) -> None:
    put = await box.client.put(f"{API}/pools/warm", json={"size": 2, "cpu_cores": 1})
    assert put.json()["image"] == "host"
    await until(lambda: box.gateway.supply.slots.warm.count("warm") == 2)
    assert (await box.client.get(f"{API}/pools")).json()["pools"][0]["ready"] == 2
    made = await box.create()
    stats = (await box.client.get(f"{API}/stats")).json()
    assert stats["sandboxes"] == {"RUNNING": 1}
    assert stats["verdicts"] == {}
    assert stats["pools"][0]["slots"]["owned"] == 1
    assert sum(stats["pools"][0]["slots"].values()) >= 2
    assert (await box.client.get(f"{API}/stats", params={"usage": "false"})).json()["usage"] == []
    assert [one["sandbox_id"] for one in stats["usage"]] == [made["id"]]
    assert (await box.client.get(f"{API}/stats", headers=box.as_tenant("key-b"))).json()["usage"] == []
    text = await box.metrics()
    assert 'sandlot_creates_total{outcome="running",source="warm"} 1.0' in text
    assert 'sandlot_pool_size{pool="warm"} 2.0' in text
    assert (await box.client.put(f"{API}/pools/bad", json={"size": 1, "image": "broken"})).status_code == 422
    assert (await box.client.put(f"{API}/pools/-", json={"size": 1})).status_code == 422
    assert (await box.client.delete(f"{API}/pools/warm")).json()["success"] is True
    assert len(box.gateway.supply.slots.warm) == 0
    assert 'pool="warm"' not in await box.metrics()
    assert (await box.client.delete(f"{API}/pools/warm")).status_code == 404


async def test_what_a_change_of_a_pool_leaves_out_stays(box: Running) -> None:
    url = f"{API}/pools/kept"
    new = await box.client.put(url, json={"memory_gb": 0.5})
    assert (new.status_code, new.json()["errors"][0]["param"]) == (422, "size"), new.text
    its = Template("host", cpu=2.0, memory=256 << 20, disk=1 << 30, pids=64, gpu_count=1, gpu_type="H100")
    await box.backend.set_pool(PoolSpec("kept", replace(its, runtime_class="kata"), 1, owner="alpha"))
    for said, field in (({"size": 0}, "size"), ({"memory_gb": 0.5}, "memory"), ({"image": None}, None)):
        before = box.machine.pools["kept"]
        answer = await box.client.put(url, json=said)
        assert answer.status_code == 200, answer.text
        after = box.machine.pools["kept"]
        assert (after.size, after.owner) == (0, "alpha")
        changed = {n for n in Template.__slots__ if getattr(after.template, n) != getattr(before.template, n)}
        assert changed == ({field} - {"size", None})
    assert answer.json()["runtime_class"] == "kata"
    assert (answer.json()["gpu_count"], answer.json()["gpu_type"]) == (1, "H100")


@pytest.mark.parametrize(("without", "image"), [(True, ""), (False, "host")])
async def test_a_new_pool_has_no_image_where_the_backend_takes_such_pools(
    box: Running, monkeypatch: pytest.MonkeyPatch, without: bool, image: str
) -> None:
    monkeypatch.setattr(box.backend, "pools_without_image", without)
    answer = await box.client.put(f"{API}/pools/slots", json={"size": 0})
    assert (answer.status_code, answer.json()["image"]) == (200, image), answer.text


async def test_a_pools_own_instance_is_preferred(box: Running) -> None:
    for name in ("one", "two"):
        await box.backend.set_pool(PoolSpec(name, Template(image="host"), 1))
    await until(lambda: len(box.gateway.supply.slots.warm) == 2)
    made = await box.create(docker_image=None, pool="two")
    sidecar = box.machine.of_sandbox(made["id"])
    assert box.machine.instances[sidecar.instance_id].pool == "two"
    refused = await box.client.post(f"{API}/sandbox", json={"pool": "two", "cpu_cores": 3})
    assert refused.json()["errors"][0]["param"] == "cpu_cores"


async def test_reuse_is_for_the_same_tenant_by_default_and_set_field_by_field(box: Running) -> None:
    url = f"{API}/pools/used"
    usual = {"policy": "tenant", "max_uses": 100, "max_age": 3600.0}
    assert (await box.client.put(url, json={"size": 0})).json()["reuse"] == usual
    for said in (
        {"policy": "never"},
        {"policy": "tenant"},
        {"max_uses": 7},
        {"max_age": 60},
        {"max_age": None},
    ):
        answer = await box.client.put(url, json={"reuse": said})
        assert answer.status_code == 200, answer.text
    assert answer.json()["reuse"] == {"policy": "tenant", "max_uses": 7, "max_age": 60.0}
    assert (await box.client.put(url, json={"pids": 64})).json()["reuse"] == answer.json()["reuse"]
    assert box.machine.pools["used"].reuse == Reuse(ReusePolicy.TENANT, 7, 60.0)
    for field, value in (("policy", "all"), ("max_uses", 0), ("max_age", 0), ("max_age", 1e300)):
        refused = await box.client.put(url, json={"reuse": {field: value}})
        assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, f"reuse.{field}")
