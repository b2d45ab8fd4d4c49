"""kopf runs again after a failure, and the controller drops a warm-up that somebody deleted in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from sandlot_controller import kopf_runs, lifecycle
from sandlot_controller.act.api import Api
from sandlot_controller.kopf_watches import KopfWatches
from sandlot_controller.metrics import Metrics
from sandlot_kube import paths
from sandlot_kube.warmups import ImageWarmup

from tests.controller.played_api import NAMESPACE, played_api
from tests.kube.scripted import Answer, answered, event, failed, listed, streamed
from tests.waiting import until

SANDBOXES, WARMUPS = paths.sandboxes(NAMESPACE), paths.warmups(NAMESPACE)


def warmup(name: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "ImageWarmup",
        "metadata": metadata,
        "spec": {"tenant": "alpha", "images": [{"name": "python:3.12"}]},
    }


class Known:
    """What kopf has told of warm-ups, in place of their loop."""

    def __init__(self) -> None:
        self.by_name: dict[str, ImageWarmup] = {}

    def seen(self, one: ImageWarmup) -> None:
        self.by_name[one.metadata.name] = one

    def gone(self, one: ImageWarmup) -> None:
        del self.by_name[one.metadata.name]

    def known(self) -> list[ImageWarmup]:
        return list(self.by_name.values())


async def stop(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("code", [500, 410])
async def test_a_warmup_deleted_in_a_gap_is_told_as_gone(code: int) -> None:
    """With status 410 kopf itself lists again, and tells nothing of what is missing either."""
    async with played_api() as (api, client):
        api.lists[WARMUPS] = listed(warmup("a"), warmup("b"), version=1)
        known = Known()
        running = asyncio.create_task(
            kopf_runs.run(
                cast(Any, SimpleNamespace()),
                cast(Any, known),
                KopfWatches(NAMESPACE),
                api=Api(client, namespace=NAMESPACE, metrics=Metrics()),
                access=client.access,
                patience=60.0,
            )
        )
        try:
            await until(lambda: set(known.by_name) == {"a", "b"})
            await until(lambda: api.has_open(WARMUPS))
            api.lists[WARMUPS] = listed(warmup("b"), warmup("c") | {"spec": "invalid"}, version=2)
            status = {"kind": "Status", "code": code, "message": "the test ends it"}
            api.watches[WARMUPS] = streamed(event("ERROR", status))
            api.cut(WARMUPS)
            await until(lambda: set(known.by_name) == {"b"})
            assert not running.done()
        finally:
            await stop(running)


@pytest.mark.parametrize("answer", [failed(403, "Forbidden"), answered(200, {"items": "none"})])
async def test_what_cannot_be_listed_is_not_taken_for_deleted(answer: Answer) -> None:
    async with played_api() as (api, client):
        watches, known = KopfWatches(NAMESPACE), Known()
        known.seen(msgspec.convert(warmup("a"), ImageWarmup))
        api.lists[WARMUPS] = answer
        running = asyncio.create_task(
            kopf_runs.run(
                cast(Any, SimpleNamespace()),
                cast(Any, known),
                watches,
                api=Api(client, namespace=NAMESPACE, metrics=Metrics()),
                access=client.access,
                patience=60.0,
            )
        )
        try:
            watches.listed.set()
            await until(lambda: len(api.asked.get(WARMUPS, [])) >= 4)
            assert set(known.by_name) == {"a"}
            api.lists.clear()
            await until(lambda: not known.by_name)
        finally:
            await stop(running)


async def test_many_resources_are_told_at_once() -> None:
    """kopf's workers held their places for 5 s after each resource: 13 resources a second."""
    count = 640  # would take 50 s
    names: set[str] = set()
    ended = SimpleNamespace(seen=lambda one: names.add(one.metadata.name))
    async with played_api() as (api, client):
        api.lists[SANDBOXES] = listed(
            *({**warmup(f"sb-{number}"), "kind": "Sandbox", "spec": {"template": {"image": "a"}}} for number in range(count)),
            version=1,
        )  # fmt: skip
        running = asyncio.create_task(
            lifecycle.run(
                cast(Any, ended),
                cast(Any, SimpleNamespace()),
                KopfWatches(NAMESPACE),
                access=client.access,
                namespace=NAMESPACE,
            )
        )
        try:
            await until(lambda: len(names) == count, seconds=30)
        finally:
            await stop(running)
