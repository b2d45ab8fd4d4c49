"""Lists of pools that are older than what this gateway has written since they began."""

from __future__ import annotations

import msgspec
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.pools import Pools
from sandlot_gateway.core.instances import PoolSpec
from sandlot_kube.objects import Metadata, SandboxPool, SandboxPoolSpec
from sandlot_kube.template import Template as KubeTemplate

from tests.kube.scripted import answered, scripted


def resource(name: str) -> SandboxPool:
    return SandboxPool(Metadata(name=name), SandboxPoolSpec(template=KubeTemplate(image="a"), size=1))


async def test_a_pool_that_is_made_while_a_list_is_read_stays() -> None:
    async with scripted() as (script, client):
        script.lists = [answered(201, msgspec.to_builtins(resource("made")))]
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        pools.changed(resource("early"))
        pools.listing()
        await pools.set(PoolSpec("made", Template("a"), 1))
        pools.replaced([resource("early")])
        assert [status.spec.name for status in pools.statuses()] == ["early", "made"]


async def test_a_pool_that_a_list_should_show_is_gone_without_it() -> None:
    async with scripted() as (_, client):
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        for name in ("early", "made"):
            pools.changed(resource(name))
        pools.listing()
        pools.replaced([resource("made")])
        assert [status.spec.name for status in pools.statuses()] == ["made"]
