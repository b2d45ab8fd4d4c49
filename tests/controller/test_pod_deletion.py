"""Pods are deleted once, the ended ones of a moment together, and again where it was refused or has become urgent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import msgspec
import pytest
from sandlot_controller.act import pod_deletion
from sandlot_controller.act.api import Api
from sandlot_controller.act.pod_deletion import PodDeletion
from sandlot_controller.act.sidecars import EndAnswer
from sandlot_controller.world.world import World
from sandlot_kube.errors import KubeError
from sandlot_kube.objects import Pod

from tests.waiting import until


class Requests:
    """In place of the API server: what was asked, and what it refuses."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bool]] = []  # a pod, or several; whether by force
        self.refuses = False
        self.touched = False

    async def delete_pod(self, one: Pod, *, force: bool = False, unchanged: bool = False) -> bool:
        self.sent.append((one.metadata.name, force))
        self._answer()
        return not (unchanged and self.touched)

    async def delete_pods(self, instances: list[str]) -> None:
        self.sent.append((" ".join(instances), False))
        self._answer()

    def _answer(self) -> None:
        if self.refuses:
            raise KubeError(status=403, reason="Forbidden", message="no")


def pod(number: int) -> Pod:
    return msgspec.convert({"metadata": {"name": f"i-{number:016x}", "uid": f"u-{number}"}}, Pod)


@pytest.fixture
def world() -> World:
    made = World(clock=lambda: 0.0)
    for number in range(3):
        made.pod_changed(pod(number))
    return made


@pytest.fixture
def api() -> Requests:
    return Requests()


@pytest.fixture
async def deletion(
    world: World, api: Requests, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PodDeletion]:
    monkeypatch.setattr(pod_deletion, "_BATCH_SECONDS", 0.01)
    made = PodDeletion(world, cast(Api, api))
    yield made
    await made.close()


async def test_a_pod_is_deleted_once_and_by_force_when_its_node_is_lost(
    deletion: PodDeletion, api: Requests
) -> None:
    name = pod(0).metadata.name
    for _ in range(2):
        deletion.delete(pod(0))
        deletion.delete_in_batch(pod(0))
    deletion.delete(pod(0), force=True)
    deletion.delete(pod(0))
    await until(lambda: len(api.sent) == 2)
    assert api.sent == [(name, False), (name, True)]
    assert deletion.is_asked(pod(0))


async def test_those_of_a_moment_are_deleted_together(deletion: PodDeletion, api: Requests) -> None:
    for number in range(3):
        deletion.delete_in_batch(pod(number))
    await until(lambda: api.sent)
    assert api.sent == [(" ".join(pod(number).metadata.name for number in range(3)), False)]


async def test_a_refused_one_is_asked_for_again(deletion: PodDeletion, api: Requests, world: World) -> None:
    api.refuses = True
    deletion.delete(pod(0))
    await until(lambda: not deletion.is_asked(pod(0)))
    api.refuses = False
    deletion.delete(pod(0))
    await until(lambda: len(api.sent) == 2)
    assert deletion.is_asked(pod(0))
    world.pod_deleted(pod(0))
    assert not deletion.is_asked(pod(0))


async def test_one_that_the_scheduler_has_touched_stays(
    deletion: PodDeletion, api: Requests, world: World
) -> None:
    api.touched = True
    assert await deletion.delete_unscheduled(pod(0)) is False
    assert not deletion.is_asked(pod(0))
    api.touched = False
    assert await deletion.delete_unscheduled(pod(0)) is True
    assert deletion.is_asked(pod(0))
    world.pod_deleted(pod(1))
    assert await deletion.delete_unscheduled(pod(1)) is True
    assert not deletion.is_asked(pod(1)), "its end was told before the answer came"


def over(number: int) -> Pod:
    """A pod whose sidecar has exited."""
    states = [{"name": "sidecar", "state": {"terminated": {"exitCode": 0}}}]
    body = {"metadata": {"name": f"i-{number:016x}", "uid": f"u-{number}"}}
    return msgspec.convert({**body, "status": {"containerStatuses": states}}, Pod)


async def test_one_whose_start_command_is_being_stopped_is_deleted_after_its_sidecar(
    deletion: PodDeletion, api: Requests, world: World
) -> None:
    deletion.delete_ended(pod(0), EndAnswer.STOPPING)
    deletion.delete(pod(0))
    deletion.delete_in_batch(pod(0))
    assert deletion.is_asked(pod(0))
    deletion.delete_ended(pod(1), EndAnswer.ENDED)
    await until(lambda: api.sent)
    assert api.sent == [(pod(1).metadata.name, False)]
    world.pod_changed(over(0))
    await until(lambda: len(api.sent) == 2)
    assert api.sent[1] == (pod(0).metadata.name, False)


async def test_one_whose_sidecar_was_over_by_then_is_not_waited_for(
    deletion: PodDeletion, api: Requests, world: World
) -> None:
    world.pod_changed(over(0))
    deletion.delete_ended(pod(0), EndAnswer.STOPPING)
    await until(lambda: api.sent == [(pod(0).metadata.name, False)])


async def test_a_sidecar_that_does_not_end_holds_up_its_pod_for_a_while_only(
    api: Requests, world: World
) -> None:
    deletion = PodDeletion(world, cast(Api, api), longest_stop=0.1)
    deletion.delete_ended(pod(0), EndAnswer.STOPPING)
    await until(lambda: api.sent == [(pod(0).metadata.name, False)])
    await deletion.close()


async def test_a_lost_node_cuts_the_wait_and_one_that_is_gone_is_not_deleted_again(
    deletion: PodDeletion, api: Requests, world: World
) -> None:
    for number in range(3):
        deletion.delete_ended(pod(number), EndAnswer.STOPPING)
    deletion.delete(pod(0), force=True)
    world.pod_deleted(pod(0))
    world.pod_deleted(pod(1))
    world.pod_changed(over(2))
    await until(lambda: len(api.sent) == 2)
    assert sorted(api.sent) == [(pod(0).metadata.name, True), (pod(2).metadata.name, False)]
