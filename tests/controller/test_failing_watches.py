"""A leader whose watch the API server fails in passing keeps its term, tries again after a while, and says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sandlot_controller.controller import Controller
from sandlot_kube import paths

from tests.controller.pages import page, shows
from tests.controller.played import settings_in
from tests.controller.played_api import NAMESPACE, PlayedApi, played_api
from tests.kube.scripted import Answer, failed, listed, streamed
from tests.waiting import until

WARMUPS = paths.warmups(NAMESPACE)
SANDBOXES = paths.sandboxes(NAMESPACE)


@asynccontextmanager
async def leading(
    directory: Path, *, lists: Mapping[str, Answer] | None = None, **more: Any
) -> AsyncIterator[tuple[PlayedApi, Controller]]:
    async with played_api() as (api, client):
        api.lists.update(lists or {})
        settings = settings_in(
            directory, lease_namespace=NAMESPACE, health_host="127.0.0.1", health_port=0, **more
        )
        controller = Controller(client, settings)
        running = asyncio.create_task(controller.run())
        try:
            working = asyncio.create_task(controller.working.wait())
            await asyncio.wait([running, working], timeout=60, return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            assert controller.working.is_set(), running
            yield api, controller
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.wait([running])


def error_event(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "message": "etcdserver: request timed out"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (WARMUPS, streamed(error_event(500))),
        (SANDBOXES, streamed(error_event(504))),
        (WARMUPS, failed(401, "Unauthorized")),
        (WARMUPS, failed(404, "NotFound")),
    ],
    ids=["warm-ups 500", "sandboxes 504", "its token", "rejected"],
)
async def test_a_watch_that_fails_in_passing_costs_no_term(tmp_path: Path, path: str, answer: Answer) -> None:
    async with leading(tmp_path) as (api, controller):
        api.watches[path] = answer
        api.cut(path)
        await until(lambda: shows(controller, "kopf", True))
        del api.watches[path]
        await until(lambda: shows(controller, "kopf", False))
        assert controller.working.is_set()
        assert api.lease is not None
        assert "leaseTransitions" not in api.lease["spec"]  # of the first term


async def test_a_token_that_is_rejected_is_tried_again_at_intervals(tmp_path: Path) -> None:
    async with leading(tmp_path, lists={WARMUPS: failed(401, "Unauthorized")}) as (api, controller):
        await until(lambda: len(api.asked.get(WARMUPS, [])) >= 5)
        assert min(after - before for before, after in pairwise(api.asked[WARMUPS])) > 0.1
        assert await shows(controller, "kopf", True)
        answer = await page(controller, "readyz")
        assert f"cannot read sandboxes and imagewarmups with kopf: {WARMUPS}: status 401\n" == answer.text
        assert answer.status_code == 200  # else a drain of the standby would wait for it
        api.lists.clear()
        await until(lambda: shows(controller, "kopf", False))


async def test_what_fails_for_long_leaves_the_lease_to_another(tmp_path: Path) -> None:
    async with leading(tmp_path, list_timeout=2.0, lease_seconds=12.0) as (api, controller):
        api.watches[WARMUPS] = streamed(error_event(500))
        api.cut(WARMUPS)
        await until(lambda: not controller.working.is_set())
        await until(lambda: api.lease is not None and not api.lease["spec"].get("holderIdentity"))
        api.watches.clear()
        await until(lambda: controller.working.is_set())


async def test_one_that_gives_up_the_lease_shows_no_pools_any_more(tmp_path: Path) -> None:
    """Else two controllers would export one pool."""
    pool = {"metadata": {"name": "p", "uid": "p"}, "spec": {"size": 0, "template": {"image": "x"}}}
    lists = {paths.pools(NAMESPACE): listed(pool, version=1)}
    async with leading(tmp_path, lists=lists, list_timeout=2.0, lease_seconds=30.0) as (api, controller):
        await until(lambda: pool_metrics(controller))
        api.watches[WARMUPS] = streamed(error_event(500))
        api.cut(WARMUPS)
        await until(lambda: not controller.working.is_set())
        assert await pool_metrics(controller) == []


async def pool_metrics(controller: Controller) -> list[str]:
    lines = (await page(controller, "metrics")).text.splitlines()
    return [line for line in lines if line.startswith("sandlot_controller_pool_")]
