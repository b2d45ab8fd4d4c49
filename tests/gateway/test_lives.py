"""Single lives that went wrong once, step by step; test_lives_model.py looks for more of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_contract.ids import InstanceId
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives import World
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_messages import Call, Word


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, gateways=2, recycles=False)
    yield world
    world.close()


@pytest.fixture
def reusing(tmp_path: Path) -> Iterator[World]:
    """Where slots are reset for the next sandbox."""
    world = World(tmp_path, gateways=2, recycles=True)
    yield world
    world.close()


def made(gateway: Gateway, *, checkpoint: str | None = None) -> Sandbox:
    sandbox = gateway.create(checkpoint=checkpoint)
    assert sandbox is not None
    return sandbox


def take(world: World, kind: str) -> None:
    """The only call of its kind arrives, and is answered."""
    call = only(world, kind)
    world.arrive(call)
    world.answer(call, call.result)


def only(world: World, kind: str) -> Call:
    [call] = [call for call in world.calls if call.kind == kind]
    return call


def lose_claims_answer(world: World) -> None:
    """The sidecar has an owner, and the gateway that asked does not know."""
    claim = only(world, "claim")
    world.arrive(claim)
    world.answer(claim, "uncertain")


def lose_its_end(world: World) -> None:
    """The sidecar is asked to end if it is unused, for as long as it does not answer."""
    world.lose_call(only(world, "end"))
    world.pass_time(4.0)
    world.lose_call(only(world, "end"))


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
    lose_claims_answer(world)
    hear(world, other)
    seen = other.directory.get(sandbox.id)
    assert seen is not None
    assert (seen.status, seen.instance_id) == ("RUNNING", first)

    take(world, "end")
    hear(world, other)
    assert other.directory.get(sandbox.id) is None, "it is still to come"

    second = launch(world)
    take(world, "claim")
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
    lose_claims_answer(world)
    lose_its_end(world)
    launch(world)
    take(world, "claim")
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
    assert (sandbox.status, sandbox.verdict) == ("TERMINATED", "exited")
    world.answer(claim, claim.result)
    assert (sandbox.status, sandbox.verdict) == ("TERMINATED", "exited")
    assert maker.supply.slots.get(InstanceId(instance_id)) is None


def test_of_two_claims_that_are_heard_of_at_once_the_later_one_counts(world: World) -> None:
    """The first one's instance stayed for a heartbeat, in which its commands were answered."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    first = launch(world)
    lose_claims_answer(world)
    lose_its_end(world)
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


def test_a_sandbox_deleted_while_its_files_come_takes_no_slot_from_the_next(reusing: World) -> None:
    """Its slot was reset at once and claimed again; the restore then failed, and ended it under its new owner."""
    maker = reusing.gateways[0]
    first = made(maker, checkpoint="cp-1")
    launch(reusing)
    take(reusing, "claim")
    maker.delete(first)
    assert [call.kind for call in reusing.calls] == ["restore"], "who brings its files retires the slot"
    restore = only(reusing, "restore")
    reusing.answer(restore, "failed")
    assert [(call.kind, call.body["only_of"]) for call in reusing.calls] == [("end", first.id)]


def test_a_create_that_goes_on_after_a_restart_is_not_its_old_instances(world: World) -> None:
    """That one ended since nobody brought its files, and the create with it, which had a start under way."""
    maker = world.gateways[0]
    sandbox = made(maker, checkpoint="cp-1")
    first = launch(world)
    take(world, "claim")
    maker.answered(sandbox)
    world.kill(maker, keep_disk=True)
    again = world.gateways[0]
    sidecar = world.sidecars[first]
    again.receive(Word(again, first, {"event": "heartbeat", "restoring": True, **sidecar.state()}))
    again.resume()
    world.words.clear()
    world.die(sidecar, word="start_failed")
    hear(world, again)
    seen = again.directory.get(sandbox.id)
    assert seen is not None
    assert seen.status == "PENDING"
    launch(world)
    take(world, "claim")
    world.answer(only(world, "restore"), "restored")
    assert seen.status == "RUNNING"


def test_a_promised_sandbox_is_waited_for_when_its_claim_is_given_back(world: World) -> None:
    """It was unknown from then on, to a caller who had been told of it."""
    maker, other = world.gateways
    sandbox = made(maker)
    other._run(lambda: other.lifecycle.adoption.pending_create_found(sandbox.id, sandbox.request()))
    launch(world)
    lose_claims_answer(world)
    hear(world, other)
    seen = other.directory.get(sandbox.id)
    assert seen is not None
    assert seen.status == "RUNNING"
    take(world, "end")
    hear(world, other)
    assert other.directory.get(sandbox.id) is seen
    assert (seen.status, seen.instance_id) == ("PENDING", None)


def test_a_slot_that_is_reset_elsewhere_ends_only_the_sandbox_that_ran_there(reusing: World) -> None:
    maker, other = reusing.gateways
    sandbox = made(maker)
    first = launch(reusing)
    reusing.arrive(only(reusing, "claim"))
    maker.answered(sandbox)
    reusing.kill(maker, keep_disk=True)
    again = reusing.gateways[0]
    again.resume()
    reusing.words.clear()
    reusing.speak(reusing.sidecars[first], "heartbeat", to=[again])
    hear(reusing, again)
    second = launch(reusing)
    take(reusing, "claim")
    reusing.words.clear()
    for instance_id in (second, first):
        reusing.speak(reusing.sidecars[instance_id], "heartbeat", to=[other])
    hear(reusing, other)
    # Somebody else's: a claim that counts no more is ended, since a reset tells others that its sandbox has ended.
    assert reusing.reset(first)
    hear(reusing, again)
    seen = again.directory.get(sandbox.id)
    assert seen is not None
    assert (seen.status, seen.instance_id) == ("RUNNING", second)
    take(reusing, "end")
    hear(reusing, again)
    assert (seen.status, seen.instance_id) == ("RUNNING", second)
