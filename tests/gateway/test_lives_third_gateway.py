"""Lives of a create that is followed without a known holder, while its retry comes to a third gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_kubernetes_gateway import KubernetesGateway


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, gateways=3, reuses=True) as world:
        yield world


def silence(gateway: Gateway, *, silent: bool = True) -> None:
    """It answers no other one in time, and lives."""
    assert isinstance(gateway, KubernetesGateway)
    gateway.peers.silent = silent


def lost(world: KubernetesWorld, gateway: Gateway) -> Sandbox:
    """A create whose claim was given up before its answer, and which its gateway follows."""
    sandbox = gateway.create(key="k")
    assert sandbox is not None
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    instance = gateway.backend.instance(claim.instance_id)
    gateway._run(lambda: gateway.webhooks.found(instance, {"phase": 7}))
    world.give_answer(claim)
    return sandbox


def goes_on(world: KubernetesWorld) -> None:
    for _ in range(6):
        world.quiet()
        world.pass_time(5.0)
    world.quiet()


def owners(world: KubernetesWorld) -> list[str]:
    return [one.owner for one in world.sidecars.values() if one.owner is not None]


def test_one_whose_claim_was_lost_is_found_by_its_retry(world: KubernetesWorld) -> None:
    """Its gateway waits for a silent one, which may have it; the third gateway made another sandbox."""
    maker, quiet, third = world.gateways
    silence(quiet)
    sandbox = lost(world, maker)
    world.pass_time(1.0)
    third.create(key="k")
    known = third.directory.by_key("t", "k")
    assert known is not None
    assert known.id == sandbox.id
    goes_on(world)
    assert owners(world) == []
    silence(quiet, silent=False)
    goes_on(world)
    assert owners(world) == [sandbox.id]
    assert (sandbox.status, known.status) == ("RUNNING", "RUNNING")


def test_one_that_is_followed_for_a_retry_is_found_by_the_next_retry(world: KubernetesWorld) -> None:
    """Its first gateway has died, and another one is silent."""
    maker, follower, third = world.gateways
    sandbox = maker.create(key="k")
    assert sandbox is not None
    follower.create(key="k")
    world.kill(maker)
    silence(world.gateways[0])
    for _ in range(3):  # both look for its last claims at sidecars before they ask
        world.pass_time(1.0)
        world.quiet()
    third.create(key="k")
    world.quiet()
    known = third.directory.by_key("t", "k")
    assert known is not None
    assert known.id == sandbox.id
    silence(world.gateways[0], silent=False)
    goes_on(world)
    assert owners(world) == [sandbox.id]


def test_one_whose_gateway_has_just_died_is_found_by_the_next_retry(world: KubernetesWorld) -> None:
    """The gateway that follows it has not asked since."""
    maker, follower, third = world.gateways
    sandbox = maker.create(key="k")
    assert sandbox is not None
    follower.create(key="k")
    world.pass_time(0.5)
    world.kill(maker)
    third.create(key="k")
    goes_on(world)
    known = third.directory.by_key("t", "k")
    assert known is not None
    assert known.id == sandbox.id
    assert known.status == "RUNNING"
    assert owners(world) == [sandbox.id]
