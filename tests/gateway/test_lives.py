"""Single lives that went wrong once, step by step; test_lives_model.py looks for more of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.lives import Call, Gateway, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, gateways=2, recycles=False)
    yield world
    world.close()


def only(world: World, kind: str) -> Call:
    [call] = [call for call in world.calls if call.kind == kind]
    return call


def launch(world: World) -> str:
    """The start that is asked for, up to its sidecar's word at the gateway that asked."""
    call = only(world, "launch")
    world.arrive(call)
    world.answer(call, "launched")
    world.words.clear()
    world.get_ready(world.sidecars[call.instance_id])
    hear(world, call.gateway)
    return call.instance_id


def hear(world: World, gateway: Gateway) -> None:
    """All that sidecars have said, in their order."""
    for word in [word for word in world.words if word.gateway is gateway]:
        world.words.remove(word)
        gateway.receive(word)


def test_a_claim_whose_answer_is_lost_ends_no_sandbox_at_another_gateway(world: World) -> None:
    """The other one took the end of the first claim for the sandbox's, and then ended the second one's instance."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    first = launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.answer(claim, "uncertain")
    hear(world, other)
    seen = other.directory.get(sandbox.id)
    assert seen is not None
    assert (seen.status, seen.instance_id) == ("RUNNING", first)

    end = only(world, "end")
    world.arrive(end)
    world.answer(end, end.result)
    hear(world, other)
    assert other.directory.get(sandbox.id) is None, "it is still to come"

    second = launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.answer(claim, claim.result)
    hear(world, other)
    for gateway in world.gateways:
        seen = gateway.directory.get(sandbox.id)
        assert seen is not None
        assert (seen.status, seen.instance_id) == ("RUNNING", second)
    assert not [call for call in world.calls if (call.kind, call.instance_id) == ("end", second)]


def test_the_instance_of_a_claim_that_nobody_heard_of_is_taken_away(world: World) -> None:
    """Its gateway died before it could give it back: every other one knows that the sandbox is elsewhere."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    first = launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.answer(claim, "uncertain")
    launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.answer(claim, claim.result)
    world.kill(maker)
    world.words.clear()
    for sidecar in reversed(world.sidecars.values()):
        world.speak(sidecar, "heartbeat", to=[other])
    hear(world, other)
    end = only(world, "end")
    assert (end.instance_id, end.body) == (first, {"verdict": "given_back", "only_of": sandbox.id})


def test_an_instance_that_is_lost_while_it_accepts_its_owner_is_told(world: World) -> None:
    """Its end came before its claim's answer, and the sandbox was taken for running from then on."""
    maker = world.gateways[0]
    sandbox = maker.create()
    assert sandbox is not None
    instance_id = launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.die(world.sidecars[instance_id], word="exited")
    hear(world, maker)
    assert sandbox.status == "PENDING"
    world.answer(claim, claim.result)
    assert (sandbox.status, sandbox.verdict) == ("TERMINATED", "exited")


def test_of_two_claims_that_are_heard_of_at_once_the_later_one_counts(world: World) -> None:
    """The first one's instance stayed for a heartbeat, in which its commands were answered."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    first = launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.answer(claim, "uncertain")
    second = launch(world)
    claim = only(world, "claim")
    world.arrive(claim)
    world.kill(maker)
    world.words.clear()
    for sidecar in world.sidecars.values():
        world.speak(sidecar, "heartbeat", to=[other])
    hear(world, other)
    seen = other.directory.get(sandbox.id)
    assert seen is not None
    assert (seen.status, seen.instance_id) == ("RUNNING", second)
    end = only(world, "end")
    assert (end.instance_id, end.body) == (first, {"verdict": "given_back", "only_of": sandbox.id})
