"""Lists and events of pools that are older than what this gateway has written meanwhile."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web
from sandlot_contract.template import Template
from sandlot_gateway.backends.kubernetes.pools import Pools
from sandlot_gateway.core.instances import PoolSpec
from sandlot_kube.objects import Metadata, SandboxPool, SandboxPoolSpec
from sandlot_kube.template import Template as KubeTemplate

from tests.kube.scripted import Answer, answered, scripted


def resource(name: str, *, version: int = 1, size: int = 1, uid: str = "first") -> SandboxPool:
    metadata = Metadata(name=name, uid=uid, resource_version=str(version))
    return SandboxPool(metadata, SandboxPoolSpec(template=KubeTemplate(image="a"), size=size))


def answer(status: int, pool: SandboxPool) -> Answer:
    return answered(status, msgspec.to_builtins(pool))


def sizes(pools: Pools) -> dict[str, int]:
    return {status.spec.name: status.spec.size for status in pools.statuses()}


async def test_a_pool_that_is_made_while_a_list_is_read_stays() -> None:
    async with scripted() as (script, client):
        script.lists = [answer(201, resource("made"))]
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


@pytest.mark.parametrize("late", ["a list", "the watch"])
async def test_a_change_stays_until_it_is_shown(late: str) -> None:
    async with scripted() as (script, client):
        script.lists = [answer(200, resource("p", version=7, size=3))]
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        pools.changed(resource("p", version=4))
        pools.listing()
        await pools.set(PoolSpec("p", Template("a"), 3))
        assert sizes(pools) == {"p": 3}
        if late == "a list":
            pools.replaced([resource("p", version=4)])
        else:
            pools.changed(resource("p", version=6, size=2))  # by another gateway, before
        assert sizes(pools) == {"p": 3}
        pools.changed(resource("p", version=7, size=3))
        pools.changed(resource("p", version=8, size=5))
        assert sizes(pools) == {"p": 5}


async def test_an_answer_that_is_older_than_what_the_watch_has_shown_changes_nothing() -> None:
    async with scripted() as (script, client):
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        pools.changed(resource("p", version=4))
        written = answer(200, resource("p", version=7, size=3))

        async def late(request: web.Request) -> web.StreamResponse:
            pools.changed(resource("p", version=8, size=5))
            return await written(request)

        script.lists = [late]
        await pools.set(PoolSpec("p", Template("a"), 3))
        assert sizes(pools) == {"p": 5}


@pytest.mark.parametrize("late", ["a list", "the watch"])
async def test_a_deleted_pool_stays_away(late: str) -> None:
    async with scripted() as (script, client):
        script.lists = [answered(200, {}), answer(201, resource("p", version=9, size=2, uid="second"))]
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        pools.changed(resource("p"))
        pools.listing()
        assert await pools.delete("p")
        if late == "a list":
            pools.replaced([resource("p")])
        else:
            pools.changed(resource("p", version=6))
        assert sizes(pools) == {}
        await pools.set(PoolSpec("p", Template("a"), 2))  # another one of that name
        pools.deleted(resource("p", version=8))
        assert sizes(pools) == {"p": 2}
        pools.deleted(resource("p", version=10, uid="second"))
        assert sizes(pools) == {}


async def test_a_pool_that_is_made_again_while_a_list_is_read_stays() -> None:
    async with scripted() as (script, client):
        script.lists = [answered(200, {}), answer(201, resource("p", version=9, size=2, uid="second"))]
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        pools.changed(resource("p"))
        pools.listing()
        assert await pools.delete("p")
        await pools.set(PoolSpec("p", Template("a"), 2))
        pools.replaced([])
        assert sizes(pools) == {"p": 2}


async def test_versions_that_begin_again_are_shown_by_the_next_list() -> None:
    """The cluster's data were restored from a backup."""
    async with scripted() as (script, client):
        script.lists = [answer(200, resource("p", version=900, size=3))]
        pools = Pools(client, namespace="boxes", starting=lambda pool: 0)
        pools.changed(resource("p", version=800))
        await pools.set(PoolSpec("p", Template("a"), 3))
        pools.listing()
        pools.replaced([resource("p", version=5, size=1)])
        assert sizes(pools) == {"p": 1}
