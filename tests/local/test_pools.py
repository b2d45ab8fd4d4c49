"""Pools with real sidecars: size, refill, smaller, other template, restart, failures; and used instances again."""

from __future__ import annotations

import json
import os
import signal

import pytest
from sandlot_contract.reuse import ReusePolicy
from sandlot_contract.template import Template
from sandlot_gateway.core.instances import Instance, PoolSpec, Reuse

from tests.local.conftest import Machine
from tests.local.gateway import Gateway
from tests.waiting import until

SMALL = Template("host", cpu=1.0, memory=256 << 20, pids=64)
REUSE = Reuse(ReusePolicy.TENANT)
OTHER = Template("host", cpu=0.5, memory=128 << 20, pids=32)
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real namespaces and cgroups"),
]


async def until_warm(gateway: Gateway, count: int, pool: str = "a") -> list[Instance]:
    """Waits until the pool is full and settled."""

    def settled() -> bool:
        starting = {status.spec.name: status.starting for status in gateway.backend.pools()}
        return gateway.warm_count(pool) == count and starting.get(pool, 0) == 0

    await gateway.until(settled)
    return [instance for instance in gateway.warm.values() if instance.pool == pool]


async def test_a_pool_is_filled_refilled_made_smaller_and_deleted(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 3))
        instances = await until_warm(gateway, 3)
        assert {instance.template for instance in instances} == {SMALL}
        assert len(gateway.ready_at) == 3
        await gateway.claim(instances[0])
        await until_warm(gateway, 3)
        assert len(gateway.ready_at) == 4
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 1))
        assert await gateway.backend.delete_pool("a")
        assert not await gateway.backend.delete_pool("a")
        assert gateway.warm == {}
        assert gateway.backend.stats()["instances"] == 1
        assert gateway.backend.instance(instances[0].id) is instances[0]
        await gateway.backend.destroy_all(timeout=60)


async def test_another_template_replaces_the_warm_ones(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 2))
        old = {instance.id for instance in await until_warm(gateway, 2)}
        await gateway.backend.set_pool(PoolSpec("a", OTHER, 2))
        new = await until_warm(gateway, 2)
        assert {instance.template for instance in new} == {OTHER}
        assert not old & {instance.id for instance in new}
        assert gateway.backend.stats()["instances"] == 2
        await gateway.backend.destroy_all(timeout=60)


async def test_a_dead_warm_instance_is_replaced(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 1))
        (instance,) = await until_warm(gateway, 1)
        record = machine.state_dir / "instances" / instance.id / "instance.json"
        os.kill(json.loads(record.read_bytes())["process"]["pid"], signal.SIGKILL)
        await gateway.until(lambda: instance.id in gateway.lost)
        (new,) = await until_warm(gateway, 1)
        assert new.id != instance.id
        await gateway.backend.destroy_all(timeout=60)


async def test_a_restarted_gateway_keeps_the_pool_and_does_not_start_it_twice(machine: Machine) -> None:
    async with machine.gateway() as first:
        await first.backend.set_pool(
            PoolSpec("a", SMALL, 2, owner="t", reuse=Reuse(ReusePolicy.TENANT, 7, 60.0))
        )
        before = {instance.id for instance in await until_warm(first, 2)}
    async with machine.gateway() as second:
        (status,) = second.backend.pools()
        assert status.spec == PoolSpec("a", SMALL, 2, owner="t", reuse=Reuse(ReusePolicy.TENANT, 7, 60.0))
        assert {instance.id for instance in await until_warm(second, 2)} == before
        assert second.ready_at == {}
        await second.backend.destroy_all(timeout=60)
        assert second.backend.pools() == []
    async with machine.gateway() as third:
        assert third.backend.pools() == []


async def test_a_pool_that_cannot_start_says_why_and_recovers(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        missing = machine.directory / "image.tar"
        await gateway.backend.set_pool(PoolSpec("a", Template(str(missing)), 2))
        await until(lambda: gateway.backend.pools()[0].failures)
        (status,) = gateway.backend.pools()
        assert status.message == f"{missing}: no such file on the gateway's machine"
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 1))
        await until_warm(gateway, 1)
        (status,) = gateway.backend.pools()
        assert (status.failures, status.message) == (0, None)
        await gateway.backend.destroy_all(timeout=60)


async def test_a_used_instance_comes_back_fresh(machine: Machine) -> None:
    async with machine.gateway(max_starting=1) as gateway:
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 1, reuse=REUSE))
        (instance,) = await until_warm(gateway, 1)
        token = await gateway.claim(instance, env={"SECRET_OF": "first"})
        dirty = "echo x > /etc/left; echo x > /tmp/left; mkdir -p /root/.ssh; (setsid sleep 999 &); rm -f /etc/hostname"
        await gateway.run(instance, token, dirty)
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 3, reuse=REUSE))  # so that it is wanted back
        assert await gateway.recycle(instance)
        await gateway.until_ready(instance, generation=2)
        await gateway.until(lambda: gateway.backend.pools()[0].starting == 0)
        token = await gateway.claim(instance)
        seen = await gateway.run(
            instance,
            token,
            'cat /etc/left /tmp/left; env; ls /root/.ssh; for d in /proc/[0-9]*; do tr "\\0" " " < $d/cmdline; done 2>/dev/null',
        )
        assert "SECRET_OF" not in seen["stdout"]
        assert "sleep" not in seen["stdout"]
        assert seen["stderr"].count("No such file") == 3
        await gateway.backend.destroy_all(timeout=60)


async def test_an_old_owner_s_network_does_not_stay(machine: Machine) -> None:
    async with machine.gateway(max_starting=1) as gateway:
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 1, reuse=REUSE))
        (instance,) = await until_warm(gateway, 1)
        token = await gateway.claim(instance, network="none")
        interfaces = await gateway.run(instance, token, "tail -n +3 /proc/net/dev | cut -d: -f1")
        assert interfaces["stdout"].split() == ["lo"]
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 3, reuse=REUSE))  # so that it is wanted back
        assert await gateway.recycle(instance)
        await gateway.until_ready(instance, generation=2)
        token = await gateway.claim(instance)
        # Of the machine's, in which others make devices meanwhile.
        network = await gateway.run(instance, token, "readlink /proc/self/ns/net")
        assert network["stdout"] == f"{os.readlink('/proc/self/ns/net')}\n"
        await gateway.backend.destroy_all(timeout=60)


async def test_nobody_in_need_or_too_often_used_means_no_recycling(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        alone = await gateway.backend.launch(OTHER)
        await gateway.until_ready(alone)
        await gateway.claim(alone)
        assert not await gateway.recycle(alone)
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 1, reuse=Reuse(ReusePolicy.TENANT, max_uses=2)))
        (instance,) = await until_warm(gateway, 1)
        await gateway.claim(instance)
        assert await gateway.recycle(instance)
        await gateway.until_ready(instance, generation=2)
        await gateway.claim(instance)
        assert not await gateway.recycle(instance)
        await gateway.backend.destroy(instance.id)
        assert not await gateway.recycle(instance)
        await gateway.backend.destroy_all(timeout=60)


async def test_claims_in_a_row_reuse_instances_instead_of_starting_ever_more(machine: Machine) -> None:
    async with machine.gateway() as gateway:
        await gateway.backend.set_pool(PoolSpec("a", SMALL, 2, reuse=REUSE))
        await until_warm(gateway, 2)
        for _ in range(30):
            await gateway.until(lambda: gateway.warm_count("a") > 0)
            instance = next(iter(gateway.warm.values()))
            token = await gateway.claim(instance)
            used = await gateway.run(instance, token, "test ! -e /tmp/mine && touch /tmp/mine")
            assert used["exit_code"] == 0
            if not await gateway.recycle(instance):
                await gateway.backend.destroy(instance.id)
        assert len(gateway.ready_at) <= 5
        await gateway.backend.destroy_all(timeout=60)
