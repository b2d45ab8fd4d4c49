"""The controller cannot read the token for a login of kopf: it says so, and tries again soon."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sandlot_controller import kopf_runs
from sandlot_controller.act.api import Api
from sandlot_controller.kopf_watches import KopfWatches
from sandlot_controller.metrics import Metrics
from sandlot_kube.access import TokenFile
from sandlot_kube.client import KubeClient

from tests.controller.cluster import Cluster
from tests.kube.apiserver import ApiServer
from tests.waiting import until

pytestmark = pytest.mark.programs

SOON = 50.0  # seconds; kopf by itself waits for 60 after each error


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the controller's own log says of logins."""
    return [
        one.getMessage() for one in caplog.records if one.getMessage().startswith("cannot log in with kopf")
    ]


async def test_a_token_that_cannot_be_read_is_told_and_read_again_soon(
    cluster: Cluster, resources: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    access = resources.access(namespace=cluster.namespace)
    access.token = TokenFile(file)
    watches = KopfWatches(cluster.namespace)
    names: set[str] = set()
    client = KubeClient(access)
    running = asyncio.create_task(
        kopf_runs.run(
            cast(Any, SimpleNamespace(seen=lambda one: names.add(one.metadata.name))),
            cast(Any, SimpleNamespace(known=list)),
            watches,
            api=Api(client, namespace=cluster.namespace, metrics=Metrics()),
            access=access,
            patience=600.0,
        )
    )
    try:
        await until(lambda: len(told(caplog)) >= 3, seconds=SOON)
        assert all(str(file) in message for message in told(caplog))
        assert watches.failure is not None
        assert str(file) in watches.failure
        assert watches.failing_for > 0, "another replica may have a token"
        await cluster.sandbox("one")
        file.write_text(resources.token)
        await until(lambda: names == {"one"}, seconds=SOON)
        await until(lambda: watches.failure is None)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await client.close()
