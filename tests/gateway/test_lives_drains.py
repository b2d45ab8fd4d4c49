"""Which creates a gateway that ends waits for: those that no other gateway brings up, also without a claim of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_kubernetes_gateway import KubernetesGateway
from tests.gateway.lives_messages import Call

DRAIN = 15.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


def claimed(world: KubernetesWorld, gateway: Gateway) -> tuple[Sandbox, Call]:
    """A create whose claim a sidecar has accepted; the answer is under way."""
    sandbox = gateway.create(key="k")
    assert sandbox is not None
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    return sandbox, claim


def lose(world: KubernetesWorld, claim: Call) -> None:
    """Its gateway gives the claim up before it reads the answer, and looks for the sandbox at the other one."""
    instance = claim.gateway.backend.instance(claim.instance_id)
    claim.gateway._run(lambda: claim.gateway.webhooks.found(instance, {"phase": 7}))
    world.give_answer(claim)


def looked_for(world: KubernetesWorld, gateway: Gateway) -> Sandbox:
    sandbox, claim = claimed(world, gateway)
    lose(world, claim)
    assert sandbox.status == "PENDING"
    return sandbox


def drained(world: KubernetesWorld, gateway: Gateway) -> asyncio.Task[None]:
    """It has been asked to end."""
    draining = world.loop.create_task(gateway.lifecycle.creates.settled(timeout=DRAIN))
    world.settle()
    return draining


def is_silent(gateway: Gateway) -> None:
    """It answers no other one in time."""
    assert isinstance(gateway, KubernetesGateway)
    gateway.peers.silent = True


def test_one_that_is_looked_for_gets_another_instance(world: KubernetesWorld) -> None:
    maker, _ = world.gateways
    sandbox = looked_for(world, maker)
    draining = drained(world, maker)
    assert not draining.done()
    world.quiet()
    world.pass_time(1.0)
    assert not draining.done()
    world.quiet()
    assert draining.done()
    assert sandbox.status == "RUNNING"


def test_one_that_another_gateway_has_begun_is_left_to_it(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, claim = claimed(world, maker)
    assert isinstance(other, KubernetesGateway)
    other.create(key="k")
    other.peers.deaf = True
    world.pass_time(1.0)
    other.peers.deaf = False
    assert other.lifecycle.creates.brings_up(sandbox.id)
    lose(world, claim)
    draining = drained(world, maker)
    world.pass_time(1.0)
    assert draining.done()
    assert sandbox.status == "PENDING"


def test_one_whose_fate_no_gateway_tells_is_waited_for_as_long_as_any(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox = looked_for(world, maker)
    is_silent(other)
    draining = drained(world, maker)
    for _ in range(14):
        world.pass_time(1.0)
    assert not draining.done()
    world.pass_time(1.0)
    assert draining.done()
    assert sandbox.status == "PENDING"


def test_one_that_is_taken_over_for_a_retry_is_brought_up(world: KubernetesWorld) -> None:
    """It is not known yet whether its maker still lives."""
    maker, other = world.gateways
    sandbox = looked_for(world, maker)
    other.create(key="k")
    known = other.directory.get(sandbox.id)
    assert known is not None
    for gateway in (maker, other):
        is_silent(gateway)
    world.pass_time(1.0)
    draining = drained(world, other)
    assert not draining.done()
    world.kill(maker)
    for _ in range(3):
        world.pass_time(1.0)
        world.quiet()
    assert draining.done()
    assert known.status == "RUNNING"


def test_its_end_waits_for_creates_and_ends_together_no_longer_than_it_may(world: KubernetesWorld) -> None:
    """The settings and the chart promise how long an end takes."""
    maker, _ = world.gateways
    ended = maker.create(key="ended")
    assert ended is not None
    world.quiet()
    maker.delete(ended)
    assert [call.kind for call in world.calls] == ["reset"]
    maker.create(key="k")
    assert [call.kind for call in world.calls] == ["reset", "claim"]
    closing = world.loop.create_task(maker.lifecycle.close(timeout=10.0))
    world.settle()
    for _ in range(9):
        world.pass_time(1.0)
    assert not closing.done()
    world.pass_time(1.0)
    assert closing.done()
