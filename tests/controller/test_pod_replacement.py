"""A pod that the scheduler rejected is deleted, also when the first request to delete it does nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from sandlot_controller.act.node_choices import NodeChoices
from sandlot_controller.act.pod_deletion import PodDeletion
from sandlot_controller.act.pod_replacement import PodReplacement
from sandlot_controller.metrics import Metrics
from sandlot_controller.settings import Settings
from sandlot_controller.world.world import World
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod

from tests.waiting import SECONDS

POD = cast("Pod", SimpleNamespace(metadata=SimpleNamespace(name="i-1")))


class Deletion:
    """Answers each request to delete as `answers` says."""

    def __init__(self, answers: list[bool | KubeError]) -> None:
        self.answers = answers
        self.done = asyncio.Event()

    async def delete_unscheduled(self, pod: Pod) -> bool:
        answer = self.answers.pop(0)
        if not self.answers:
            self.done.set()
        if isinstance(answer, KubeError):
            raise answer
        return answer


@pytest.mark.parametrize(
    "first", [False, KubeError(status=403, message="forbidden")], ids=["changed meanwhile", "refused"]
)
async def test_one_that_was_not_deleted_is_deleted_by_the_next_request(first: bool | KubeError) -> None:
    deletion = Deletion([first, True])
    made: list[PodReplacement] = []
    # Like the loop over Sandboxes, which replaces what it sees rejected at once.
    world: Any = SimpleNamespace(look_again=lambda name: made[0].replace(POD))
    made.append(
        PodReplacement(
            cast("World", world), choices=cast("NodeChoices", None), deletion=cast("PodDeletion", deletion)
        )
    )
    made[0].replace(POD)
    await asyncio.wait_for(deletion.done.wait(), SECONDS)
    assert made[0].is_replacing("i-1")
    assert made[0].done("i-1")
    await made[0].close()


def test_one_that_an_older_version_lets_wait_is_replaced_while_no_node_has_room() -> None:
    world = World(clock=lambda: 0.0)
    settings = cast("Settings", SimpleNamespace(placement="pack", starts_per_node=4, cold_starts_per_node=8))
    choices = NodeChoices(world, settings=settings, metrics=Metrics())
    waits = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    for name, labels in {"i-old": {"sandlot.dev/waited": "true"}, "i-new": {}}.items():
        body = {"metadata": {"name": name, "labels": labels}, "status": waits}
        pod = world.pods[name] = msgspec.convert(body, Pod)
        for told in world.pod_listeners:
            told(pod, False)
    assert [pod.metadata.name for pod in choices.replaceable()] == ["i-old"]
