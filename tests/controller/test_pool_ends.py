"""A pool's pods that ended by themselves: one request deletes those of a moment."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
from sandlot_contract import names
from sandlot_controller.act.api import Api
from sandlot_controller.act.node_choices import NodeChoices
from sandlot_controller.act.pod_deletion import PodDeletion
from sandlot_controller.act.pod_replacement import PodReplacement
from sandlot_controller.act.pools import PoolLoop
from sandlot_controller.act.sidecars import Sidecars
from sandlot_controller.metrics import Metrics
from sandlot_controller.tokens import InstanceTokens
from sandlot_controller.world.world import World
from sandlot_kube.objects import Pod

from tests.controller.played import running, settings_in
from tests.waiting import until


class Requests:
    """In place of the API server: the pods of each request to delete."""

    def __init__(self) -> None:
        self.deleted: list[list[str]] = []

    async def delete_pod(self, pod: Pod, *, force: bool = False) -> None:
        self.deleted.append([pod.metadata.name])

    async def delete_pods(self, instances: list[str]) -> None:
        self.deleted.append(instances)


def pod(name: str, **status: object) -> Pod:
    metadata = {"name": name, "uid": name, "labels": {names.LABEL_POOL: "p"}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}, Pod)


async def test_pods_that_ended_by_themselves_are_deleted_together(tmp_path: Path) -> None:
    passed, requests, settings = [0.0], Requests(), settings_in(tmp_path)
    world = World(clock=lambda: passed[0])
    api, metrics, sidecars = cast("Api", requests), Metrics(), Sidecars(port=1, timeout=1.0)
    choices = NodeChoices(world, settings=settings, metrics=metrics)
    deletion = PodDeletion(world, api)
    replacement = PodReplacement(world, choices=choices, deletion=deletion)
    loop = PoolLoop(
        world,
        api,
        choices=choices,
        deletion=deletion,
        replacement=replacement,
        settings=settings,
        tokens=InstanceTokens.from_file(settings.key_file),
        sidecars=sidecars,
        metrics=metrics,
    )
    ended = [f"i-{number:016x}" for number in range(3)]
    failed = {"terminated": {"exitCode": 1, "reason": "Error"}}
    try:
        for name in ended:
            world.pod_changed(pod(name, phase="Succeeded"))
        passed[0] = settings.end_grace  # in which a gateway may tell why
        world.pod_changed(
            pod(
                "i-running",
                phase="Running",
                containerStatuses=[{"name": names.CONTAINER_SIDECAR, "state": failed}],
            )
        )
        async with running(loop.run()):
            await until(lambda: len(requests.deleted) == 2)
    finally:
        await deletion.close()
        await replacement.close()
        await sidecars.close()
    assert requests.deleted[0] == ["i-running"], "its node is to be free at once"
    assert sorted(requests.deleted[1]) == ended
