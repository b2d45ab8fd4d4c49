"""kopf's part: what it opened is closed when it ends, and its failure is told."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from sandlot_controller import lifecycle
from sandlot_controller.kopf_watches import KopfWatches
from sandlot_kube import paths
from sandlot_kube.objects import Sandbox

from tests.goodbyes import open_sockets
from tests.kube.apiserver import ApiServer
from tests.kube.scripted import answered, scripted

pytestmark = pytest.mark.programs


class Seen:
    """What kopf has told, in place of what collects ended Sandboxes."""

    def __init__(self) -> None:
        self.names: asyncio.Queue[str] = asyncio.Queue()

    def seen(self, one: Sandbox) -> None:
        self.names.put_nowait(one.metadata.name)


async def test_kopf_leaves_no_connection_to_a_server_that_says_nothing_more(resources: ApiServer) -> None:
    """Its loop ends with it: a connection that still says goodbye would keep its descriptor."""
    namespace = resources.namespace("lifecycle")
    before = open_sockets()
    seen = Seen()
    running = asyncio.create_task(
        lifecycle.run(
            cast(Any, seen),
            cast(Any, seen),
            KopfWatches(namespace),
            access=resources.access(namespace=namespace),
            namespace=namespace,
        )
    )
    body = {
        "apiVersion": "sandlot.dev/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"name": "one"},
        "spec": {"template": {"image": "python:3.12"}},
    }
    await asyncio.to_thread(resources.call, "POST", paths.sandboxes(namespace), body)
    assert await asyncio.wait_for(seen.names.get(), 60) == "one"
    with resources.frozen():
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert not open_sockets() - before


async def test_a_failure_of_kopf_is_one_of_its_caller() -> None:
    """kopf waits in a thread for the flag that would stop it, and the thread outlives its failure."""
    async with scripted() as (server, client):
        server.lists += [
            answered(200, {"versions": []}) for _ in range(8)
        ]  # without groups, which kopf reads
        running = asyncio.create_task(
            lifecycle.run(
                cast(Any, Seen()), cast(Any, Seen()), KopfWatches("s"), access=client.access, namespace="s"
            )
        )
        try:
            done, _ = await asyncio.wait([running], timeout=60)
            assert done
            assert isinstance(running.exception(), lifecycle.LifecycleFailed)
        finally:
            running.cancel()
            await asyncio.wait([running])
