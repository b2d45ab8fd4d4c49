"""Lives of sandboxes whose sidecar answers a gateway's poll with a document that this gateway cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call, Sidecar

UNREADABLE = {"phase": 7}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


def polled(gateway: Gateway, sidecar: Sidecar, state: dict[str, Any] = UNREADABLE) -> None:
    instance = gateway.backend.instance(sidecar.instance_id)
    assert instance is not None
    gateway._run(lambda: gateway.webhooks.found(instance, state))


def asked(world: KubernetesWorld, gateway: Gateway) -> Call:
    """Its only claim that is under way."""
    [claim] = [call for call in world.calls if (call.kind, call.gateway) == ("claim", gateway)]
    return claim


def running(world: KubernetesWorld, gateway: Gateway) -> tuple[Sandbox, Sidecar]:
    """One of that gateway, of which no other has heard yet."""
    sandbox = gateway.create()
    assert sandbox is not None
    claim = asked(world, gateway)
    world.arrive(claim)
    world.give_answer(claim)
    assert sandbox.status == "RUNNING"
    world.words.clear()
    return sandbox, world.sidecars[claim.instance_id]


def goes_on(world: KubernetesWorld) -> None:
    for _ in range(6):
        world.quiet()
        world.pass_time(5.0)
    world.quiet()


@pytest.mark.parametrize("readable", ["nothing", "its owner"])
def test_a_sandbox_of_another_gateway_goes_on(world: KubernetesWorld, readable: str) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    polled(other, sidecar, UNREADABLE if readable == "nothing" else {**sidecar.state(), "meta": None})
    goes_on(world)
    assert sandbox.status == "RUNNING"
    assert sidecar.owner == sandbox.id


def test_a_sandbox_of_another_gateway_goes_on_when_its_sidecar_does_not_answer(
    world: KubernetesWorld,
) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    polled(other, sidecar)
    [end] = [call for call in world.calls if (call.kind, call.gateway) == ("end", other)]
    world.lose_call(end)
    goes_on(world)
    assert sandbox.status == "RUNNING"
    assert sidecar.owner == sandbox.id


def test_a_sandbox_that_has_the_slot_of_a_create_here_goes_on(world: KubernetesWorld) -> None:
    """Two gateways have asked the same sidecar, and the create here has no answer yet."""
    maker, other = world.gateways
    late = other.create()
    assert late is not None
    claim = asked(world, other)
    tried = [running(world, maker) for _ in range(2)]  # the pool has two slots
    made, sidecar = next(pair for pair in tried if pair[1].instance_id == claim.instance_id)
    polled(other, sidecar)
    goes_on(world)
    assert (made.status, late.status) == ("RUNNING", "RUNNING")
    assert sidecar.owner == made.id


@pytest.mark.parametrize("readable", ["nothing", "its owner"])
def test_a_sandbox_that_this_gateway_knows_has_an_end(world: KubernetesWorld, readable: str) -> None:
    """Its sidecar hears of it late, and the caller does not wait for that."""
    maker, other = world.gateways
    sandbox, sidecar = running(world, maker)
    world.speak(sidecar, "claimed")
    world.quiet()
    known = other.directory.get(sandbox.id)
    assert known is not None
    polled(maker, sidecar, UNREADABLE if readable == "nothing" else {**sidecar.state(), "meta": None})
    assert (sandbox.status, sandbox.verdict) == ("ERROR", "sandbox_lost")
    assert "cannot be read" in (sandbox.message or "")
    goes_on(world)
    assert sidecar.phase == "ended"
    assert known.verdict == "sandbox_lost"


def test_one_without_an_owner_ends(world: KubernetesWorld) -> None:
    sidecar = next(one for one in world.sidecars.values() if one.phase == "warm")
    polled(world.gateways[0], sidecar)
    goes_on(world)
    assert sidecar.phase == "ended"
