"""Lives of sandboxes in pods that are reset, at two gateways: the cases behind the model of test_lives_kubernetes.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.api_server import PODS, SANDBOXES
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call, Sidecar


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


def running(world: KubernetesWorld, gateway: Gateway) -> tuple[Sandbox, Sidecar]:
    sandbox = gateway.create()
    assert sandbox is not None
    world.quiet()
    assert sandbox.status == "RUNNING"
    assert sandbox.instance_id is not None
    return sandbox, world.sidecars[sandbox.instance_id]


def again_in(world: KubernetesWorld, gateway: Gateway, sidecar: Sidecar) -> Sandbox:
    """Another sandbox in this pod."""
    for _ in range(5):
        sandbox, where = running(world, gateway)
        if where is sidecar:
            return sandbox
    raise AssertionError("no create gets the pod")


def reset_of(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox) -> Call:
    gateway.delete(sandbox)
    world.quiet(until=lambda: any(call.kind == "reset" for call in world.calls))
    [call] = [call for call in world.calls if call.kind == "reset"]
    return call


def verdict(gateway: Gateway, sandbox: Sandbox) -> str | None:
    known = gateway.directory.get(sandbox.id)
    return None if known is None else known.verdict


def goes_on(world: KubernetesWorld, *, seconds: float = 50.0) -> None:
    for _ in range(int(seconds / 5)):
        world.quiet()
        world.pass_time(5.0)


def test_a_short_sandbox_has_no_record_and_every_gateway_knows_its_end(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    maker.delete(sandbox)
    world.quiet()
    assert (sidecar.phase, sidecar.generation) == ("warm", 2)
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["deleted", "deleted"]
    goes_on(world)
    assert world.api.objects[SANDBOXES] == {}


def test_one_that_stays_has_a_record_whose_end_is_not_the_pods(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    goes_on(world, seconds=20.0)
    assert world.sandbox(sandbox.id).spec.generation == 1
    other.delete(other.directory.get(sandbox.id))
    goes_on(world, seconds=15.0)
    assert world.sandbox(sandbox.id).status.verdict == "deleted"
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["deleted", "deleted"]
    assert sidecar.generation == 2
    nexts = [running(world, maker) for _ in range(3)]
    [(second, _)] = [each for each in nexts if each[1] is sidecar]
    # As the controller does after the retention.
    world.api.delete(SANDBOXES, sandbox.id)
    goes_on(world)
    assert sidecar.owner == second.id
    assert sidecar.instance_id in world.api.objects[PODS]


def test_a_delete_whose_gateway_is_killed_before_the_reset_is_no_delete(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    reset_of(world, maker, sandbox)
    world.words.clear()
    world.kill(maker)
    world.speak(sidecar, "heartbeat")
    goes_on(world)
    assert sandbox.id not in world.answered
    assert sidecar.owner == sandbox.id
    assert other.directory.get(sandbox.id).status == "RUNNING"


def test_a_gateway_that_is_killed_after_a_reset_leaves_no_sandbox_that_runs(world: KubernetesWorld) -> None:
    """No other heard of the reset; one knew the sandbox, and asks its sidecar when it is to write its record."""
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    world.speak(sidecar, "heartbeat", to=[other])
    world.quiet()
    assert other.directory.get(sandbox.id).status == "RUNNING"
    call = reset_of(world, maker, sandbox)
    world.words.clear()
    world.arrive(call)
    world.words.clear()
    world.kill(maker)
    goes_on(world)
    assert verdict(other, sandbox) == "deleted"
    assert (sidecar.phase, sidecar.generation) == ("warm", 2)
    if sandbox.id in world.api.objects[SANDBOXES]:
        assert world.sandbox(sandbox.id).status.verdict == "deleted"


def test_an_end_that_was_written_before_its_gateway_was_killed_is_carried_out(world: KubernetesWorld) -> None:
    """The pod is still owned; the gateway that sees the end resets it."""
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    goes_on(world, seconds=20.0)
    call = reset_of(world, maker, sandbox)
    for end in [one for one in world.calls if one.kind == "api"]:
        world.arrive(end)
    assert world.sandbox(sandbox.id).status.verdict == "deleted"
    assert not call.arrived
    world.words.clear()
    world.kill(maker)
    goes_on(world, seconds=20.0)
    assert verdict(other, sandbox) == "deleted"
    assert (sidecar.phase, sidecar.generation) == ("warm", 2)


def test_a_failed_proof_ends_the_pod_and_another_takes_its_place(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    world.unequal = True
    reset_of(world, maker, sandbox)
    world.pass_time(0.1)
    while world.words:  # other gateways are told of the end while the reset is under way
        world.hear(world.words.pop(0))
    goes_on(world, seconds=20.0)
    assert sidecar.phase == "ended"
    assert sidecar.instance_id not in world.api.objects[PODS]
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["deleted", "deleted"]
    assert len(world.api.objects[PODS]) == 2
    assert world.api.objects[SANDBOXES] == {}


def test_a_record_that_a_user_deletes_ends_its_sandbox_and_keeps_the_pod(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    goes_on(world, seconds=20.0)
    world.deleted[sandbox.id] = maker
    world.api.delete(SANDBOXES, sandbox.id)
    goes_on(world, seconds=20.0)
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["deleted", "deleted"]
    assert (sidecar.phase, sidecar.generation) == ("warm", 2)


def test_the_end_of_each_generation_is_followed_by_a_reset(world: KubernetesWorld) -> None:
    """The first was reset; the gateway of the second is killed before it resets the pod again."""
    maker, other = world.gateways
    first, sidecar = running(world, maker)
    maker.delete(first)
    world.quiet()
    world.pass_time(0.1)
    world.quiet()
    assert (sidecar.phase, sidecar.generation) == ("warm", 2)
    second = again_in(world, maker, sidecar)
    call = reset_of(world, maker, second)
    world.pass_time(0.1)
    while world.words:
        world.hear(world.words.pop(0))
    assert not call.arrived
    world.kill(maker)
    goes_on(world, seconds=20.0)
    assert verdict(other, second) == "deleted"
    assert (sidecar.phase, sidecar.generation) == ("warm", 3)


def test_a_late_word_of_an_end_ends_no_later_generation(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    first, sidecar = running(world, maker)
    maker.delete(first)
    world.pass_time(0.1)
    late = [word for word in world.words if "news" in word.state]
    assert late
    world.words = [word for word in world.words if word not in late]
    world.quiet()
    second = again_in(world, maker, sidecar)
    for word in late:
        world.hear(word)
    assert other.supply.slots.owner(sidecar.instance_id) == second.id
    goes_on(world)
    assert sidecar.owner == second.id
    assert [verdict(gateway, first) for gateway in (maker, other)] == ["deleted", "deleted"]


def test_a_pool_that_resets_nothing_counts_nobody(world: KubernetesWorld) -> None:
    maker = world.gateways[0]
    sandbox, _ = running(world, maker)
    maker.delete(sandbox)
    [pool] = maker.backend.pools()
    assert pool.resetting == {sandbox.tenant: 1}
    world.quiet()
    [pool] = maker.backend.pools()
    assert pool.resetting == {}
