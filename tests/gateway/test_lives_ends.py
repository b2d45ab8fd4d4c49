"""Lives of sandboxes whose pod goes with them, at two gateways: an end is told before any watch shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Sidecar, Word
from tests.gateway.test_lives_kubernetes import claimed_unheard


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, listed=False) as world:
        yield world


@pytest.fixture
def three(tmp_path: Path) -> Iterator[KubernetesWorld]:
    """With a third gateway."""
    with faultless_world(tmp_path, gateways=3) as world:
        yield world


def running(world: KubernetesWorld) -> tuple[Sandbox, Sidecar]:
    """A cold one, which both gateways know."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    world.quiet()
    assert sandbox.instance_id is not None
    assert other.directory.get(sandbox.id).status == "RUNNING"
    return sandbox, world.sidecars[sandbox.instance_id]


def news(world: KubernetesWorld) -> list[Word]:
    """What gateways have told each other, taken from what is under way."""
    world.pass_time(0.1)
    told = [word for word in world.words if "news" in word.state]
    world.words = [word for word in world.words if word not in told]
    return told


def ends_at(world: KubernetesWorld, sidecar: Sidecar, *, gateway: Gateway, verdict: str) -> None:
    """Its sidecar ends, and tells one gateway, whose writes arrive later."""
    world.die(sidecar, word=verdict)
    world.words.clear()
    world.speak(sidecar, "ended", to=[gateway])
    world.hear(world.words.pop())


def verdict(gateway: Gateway, sandbox: Sandbox) -> Any:
    return gateway.directory.get(sandbox.id).verdict


def writes_of(world: KubernetesWorld, gateway: Gateway) -> list[Any]:
    return [call for call in world.calls if call.kind == "api" and call.gateway is gateway]


def goes_on(world: KubernetesWorld) -> None:
    for _ in range(6):
        world.quiet()
        world.pass_time(5.0)


def is_killed_once_it_has_told(world: KubernetesWorld, gateway: Gateway) -> None:
    """The others hear its news, and none of its calls arrives."""
    told = news(world)
    world.kill(gateway)
    for word in told:
        world.hear(word)
    goes_on(world)


@pytest.mark.parametrize("how", ["deleted", "deadline"])
def test_an_end_is_told_before_a_watch_shows_it(world: KubernetesWorld, how: str) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running(world)
    if how == "deleted":
        maker.delete(sandbox)
    else:
        ends_at(world, sidecar, gateway=maker, verdict=how)
    for word in news(world):
        world.hear(word)
    assert verdict(other, sandbox) == how
    goes_on(world)
    assert [verdict(gateway, sandbox) for gateway in world.gateways] == [how, how]


def test_an_end_that_was_told_is_written_by_the_gateway_that_told_it(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    _, sidecar = running(world)
    ends_at(world, sidecar, gateway=maker, verdict="deadline")
    for word in news(world):
        world.hear(word)
    assert len(writes_of(world, maker)) == 1
    assert not writes_of(world, other)
    world.quiet()
    world.pass_time(5.0)
    assert not writes_of(world, other)


def test_an_end_that_was_told_outlives_the_gateway_that_told_it(world: KubernetesWorld) -> None:
    """It was killed before its write arrived."""
    maker, other = world.gateways
    sandbox, sidecar = running(world)
    ends_at(world, sidecar, gateway=maker, verdict="deadline")
    is_killed_once_it_has_told(world, maker)
    assert verdict(other, sandbox) == "deadline"
    assert world.sandbox(sidecar.instance_id).status.verdict == "deadline"


def test_a_delete_that_was_told_is_carried_out_by_the_gateway_that_heard_of_it(
    world: KubernetesWorld,
) -> None:
    """The one that was asked is killed before it reaches the sidecar or the API server."""
    maker, other = world.gateways
    sandbox, sidecar = running(world)
    maker.delete(sandbox)
    is_killed_once_it_has_told(world, maker)
    assert verdict(other, sandbox) == "deleted"
    assert sidecar.phase == "ended"
    assert world.sandbox(sidecar.instance_id).status.verdict == "deleted"


def test_an_end_that_every_watch_shows_is_told_by_no_gateway(world: KubernetesWorld) -> None:
    """The controller wrote it."""
    sandbox, sidecar = running(world)
    world.die(sidecar)
    world.pass_time(5.0)
    world.control()
    for watch in world.backlogs():
        while watch.backlog():
            world.tell(watch)
    assert {verdict(gateway, sandbox) for gateway in world.gateways} == {"sandbox_lost"}
    assert not news(world)


def test_a_late_word_of_an_end_ends_no_later_life_of_the_sandbox(world: KubernetesWorld) -> None:
    """Its first pod died before its gateway had the claim's answer, so that it has another one."""
    _, other = world.gateways
    sandbox, first, claim = claimed_unheard(world)
    ends_at(world, first, gateway=other, verdict="evicted")
    late = news(world)
    assert late
    world.lose_call(claim)
    goes_on(world)
    [second] = [one for one in world.sidecars.values() if one.owner is not None]
    assert second is not first
    for gateway in world.gateways:
        for word in late:
            world.hear(Word(gateway, word.instance_id, word.state))
        known = gateway.directory.get(sandbox.id)
        assert (known.status, known.instance_id) == ("RUNNING", second.instance_id)
    goes_on(world)
    assert second.owner == sandbox.id


def go_on_without(world: KubernetesWorld, behind: Gateway, *, until: Callable[[], bool]) -> None:
    """Let everything happen, but one gateway's watches show it nothing and it hears no sidecar."""
    for _ in range(400):
        if until():
            return
        world.words = [word for word in world.words if word.gateway is not behind]
        if starting := [one for one in world.sidecars.values() if one.phase == "starting"]:
            world.get_ready(starting[0])
        elif world.words:
            world.hear(world.words.pop(0))
        elif world.calls:
            call = world.calls[0]
            (world.give_answer if call.arrived else world.arrive)(call)
        elif shown := [watch for watch in world.backlogs() if watch.reader is not behind]:
            world.tell(shown[0])
        else:
            world.control()
            world.pass_time(0.5)
    raise AssertionError("it never came to that")


def test_a_late_word_of_an_end_ends_no_later_life_that_a_gateway_has_yet_to_see(
    three: KubernetesWorld,
) -> None:
    world = three
    maker, _, behind = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    maker.answer_pending(sandbox)
    world.quiet(until=lambda: any(call.kind == "claim" for call in world.calls))
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    first = world.sidecars[claim.instance_id]
    world.lose_call(claim)
    world.die(first, word="evicted")
    world.words.clear()
    go_on_without(world, behind, until=lambda: maker.directory.get(sandbox.id).status == "RUNNING")
    assert behind.directory.get(sandbox.id).status == "PENDING"
    world.words.clear()
    world.speak(first, "ended", to=[maker])
    world.hear(world.words.pop())
    for word in news(world):
        world.hear(word)
    goes_on(world)
    [second] = [one for one in world.sidecars.values() if one.owner is not None]
    assert second.owner == sandbox.id
    for gateway in world.gateways:
        known = gateway.directory.get(sandbox.id)
        assert (known.status, known.instance_id) == ("RUNNING", second.instance_id)
