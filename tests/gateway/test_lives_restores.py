"""Lives of sandboxes that begin with a checkpoint, at two gateways: one brings the files, the other is asked next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call


@pytest.fixture(params=[False, True], ids=["cold", "reused"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=request.param) as world:
        yield world


def restoring(world: KubernetesWorld) -> tuple[Sandbox, Call]:
    """At the first gateway, which brings the files; the other has heard of the claim meanwhile."""
    maker, other = world.gateways
    sandbox = maker.create(checkpoint="cp-1")
    assert sandbox is not None
    world.quiet(until=lambda: any(call.kind == "restore" for call in world.calls))
    [restore] = [call for call in world.calls if call.kind == "restore"]
    others_go_on(world, restore)
    assert other.supply.slots.owner(InstanceId(restore.instance_id)) == sandbox.id
    assert other.directory.get(sandbox.id) is None
    return sandbox, restore


def others_go_on(world: KubernetesWorld, call: Call) -> None:
    world.calls.remove(call)
    world.quiet()
    world.calls.append(call)


def restored_unheard(world: KubernetesWorld, restore: Call) -> None:
    """The sidecar says to one gateway that the files are there: not to the second one."""
    world.arrive(restore)
    world.words = [word for word in world.words if word.gateway is not world.gateways[1]]


def assert_known_soon(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox, *, where: str) -> None:
    world.pass_time(2.0)
    world.quiet()
    known = gateway.directory.get(sandbox.id)
    assert known is not None
    assert (known.status, known.instance_id) == ("RUNNING", where)


def test_it_is_known_to_a_gateway_that_heard_only_of_its_claim(world: KubernetesWorld) -> None:
    sandbox, restore = restoring(world)
    restored_unheard(world, restore)
    world.quiet()
    assert sandbox.status == "RUNNING"
    assert_known_soon(world, world.gateways[1], sandbox, where=restore.instance_id)


def test_it_is_known_when_the_gateway_that_brought_its_files_is_killed(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, restore = restoring(world)
    restored_unheard(world, restore)
    world.kill(maker)
    assert_known_soon(world, other, sandbox, where=restore.instance_id)


@pytest.mark.parametrize("gone", [False, True], ids=["maker lives", "maker is killed"])
def test_a_second_word_during_the_restore_changes_nothing(world: KubernetesWorld, gone: bool) -> None:
    """The word that the files are there may come to the first gateway alone, or to one that is dead."""
    maker, other = world.gateways
    sandbox, restore = restoring(world)
    for event in ("claimed", "heartbeat"):
        world.speak(world.sidecars[restore.instance_id], event, to=[other])
        world.hear(world.words.pop())
    restored_unheard(world, restore)
    if gone:
        world.kill(maker)
    assert_known_soon(world, other, sandbox, where=restore.instance_id)


def test_its_sidecar_is_asked_also_by_who_knows_only_its_owner(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, restore = restoring(world)

    async def stop_asking() -> None:
        other.backend._states.stop_asking(InstanceId(restore.instance_id))

    async def missed() -> None:
        other.backend.missed(True)

    world.loop.run_until_complete(stop_asking())
    restored_unheard(world, restore)
    world.kill(maker)
    world.loop.run_until_complete(missed())
    assert_known_soon(world, other, sandbox, where=restore.instance_id)


def test_a_restore_that_takes_long_is_waited_for(world: KubernetesWorld) -> None:
    sandbox, restore = restoring(world)
    for _ in range(60):
        world.pass_time(1.0)
        others_go_on(world, restore)
    restored_unheard(world, restore)
    world.quiet()
    assert_known_soon(world, world.gateways[1], sandbox, where=restore.instance_id)


def test_one_that_dies_before_its_files_are_there_is_asked_no_more(world: KubernetesWorld) -> None:
    sandbox, restore = restoring(world)
    world.die(world.sidecars[restore.instance_id], word="start_failed")
    world.answer(restore, "failed")
    for _ in range(10):
        world.pass_time(1.0)
        world.quiet()
    assert not sandbox.live
    world.pass_time(2.0)
    assert [call for call in world.calls if call.instance_id == restore.instance_id] == []
