"""A pool's pod whose creation is repeated while the API server is away, until the pool itself is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from sandlot_controller.act.api import Api
from sandlot_controller.act.node_choices import NodeChoices
from sandlot_controller.act.pool_starts import PoolStarts
from sandlot_controller.metrics import Metrics
from sandlot_controller.plan.pools import Planner
from sandlot_controller.settings import Settings
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.world.world import World
from sandlot_kube.errors import KubeUnreachable
from sandlot_kube.objects import SandboxPool

from tests.controller.pool_views import KEY, pool_of
from tests.waiting import until

POOL = {
    "metadata": {"name": "p", "uid": "u"},
    "spec": {"template": {"image": "python:3.12"}, "size": 1},
}


class AwayApi:
    """Answers no request."""

    def __init__(self) -> None:
        self.requests = 0

    async def create_pod(self, pod: dict[str, Any], *, kind: str) -> None:
        self.requests += 1
        raise KubeUnreachable("away")


async def test_a_pod_whose_pool_is_deleted_meanwhile_is_not_created(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "master"
    key.write_bytes(b"k" * 32)
    settings = Settings(namespace="s", key_file=key, webhook_url="http://g/", sidecar_image="s")
    world = World(clock=asyncio.get_running_loop().time)
    choices = NodeChoices(world, settings=settings, metrics=Metrics())
    planner, api = Planner(), AwayApi()
    planner.plan([pool_of("p", KEY, 1)], ledger=choices.ledger, now=0.0)
    starts = PoolStarts(
        world,
        cast("Api", api),
        planner=planner,
        choices=choices,
        settings=settings,
        tokens=InstanceTokens.from_file(key),
    )
    pool = msgspec.convert(POOL, SandboxPool)
    try:
        starts.begin(pool, node="n1")
        assert choices.is_tried(pool.spec.template)
        await until(lambda: api.requests > 0)
        planner.plan([], ledger=choices.ledger, now=0.0)
        before = api.requests
        await until(lambda: not choices.is_tried(pool.spec.template))
        assert api.requests == before
        assert not caplog.records
    finally:
        await starts.close()
