"""Lives of a sandbox whose claim its gateway has no answer to, while another one has heard of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_kept import calls, is_kept
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubernetesWorld]:
    """Its parameter: whether its pods are warm before there are creates."""
    with faultless_world(tmp_path, reuses=request.param) as world:
        yield world


def answer_lost(world: KubernetesWorld) -> tuple[Sandbox, Call]:
    """A claim that its sidecar has accepted, as the other gateway knows, and its own does not."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    world.quiet(until=lambda: bool(calls(world, "claim", of=maker)))
    [claim] = calls(world, "claim", of=maker)
    for _ in range(2):
        [asked] = calls(world, "claim", of=maker)
        world.arrive(asked)
        world.lose_call(asked)
    for word in [one for one in world.words if one.gateway is other]:
        world.words.remove(word)
        world.hear(word)
    known = other.directory.get(sandbox.id)
    assert known is not None
    assert (known.status, known.instance_id) == ("RUNNING", claim.instance_id)
    return sandbox, claim


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
@pytest.mark.parametrize("refused", [False, True], ids=["heard", "refused at first"])
def test_a_claim_without_an_answer_stays_where_it_is_used(world: KubernetesWorld, refused: bool) -> None:
    """Its gateway gave it back and claimed another instance, and what the caller had done in the first was lost."""
    maker, other = world.gateways
    sandbox, claim = answer_lost(world)
    world.sidecars[claim.instance_id].used = True
    if refused:
        for _ in range(4):
            [end] = calls(world, "end", of=maker)
            world.lose_call(end)
            world.pass_time(0.5)
    for gateway in (other, maker):
        is_kept(world, gateway, sandbox, claim)


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
@pytest.mark.parametrize("asked", ["the claim", "its end"])
def test_a_claim_that_a_gateway_gives_up_as_it_ends_stays_where_it_is_used(
    world: KubernetesWorld, asked: str
) -> None:
    """Its sidecar was asked to end whether it was used or not, and no other instance was claimed for its sandbox."""
    maker, other = world.gateways
    sandbox, claim = answer_lost(world)
    world.sidecars[claim.instance_id].used = True
    if asked == "the claim":
        [end] = calls(world, "end", of=maker)
        world.arrive(end)
        world.give_answer(end)
    assert len(calls(world, "claim" if asked == "the claim" else "end", of=maker)) == 1
    closing = world.loop.create_task(maker.lifecycle.close(timeout=0.2))
    world.settle()
    world.pass_time(0.1)
    world.quiet()
    world.pass_time(0.2)
    assert closing.done()
    world.kill(maker)
    is_kept(world, other, sandbox, claim)


@pytest.mark.parametrize("world", [False], ids=["cold"], indirect=True)
@pytest.mark.parametrize("heard", ["its word", "an older word", "of its pod", "its answer"])
def test_the_end_of_a_claim_without_an_answer_is_no_end_of_its_sandbox(
    world: KubernetesWorld, heard: str
) -> None:
    """The end was heard of before its answer came: then its Sandbox was deleted, which is how a sandbox's delete looks.

    `heard`: which of these comes first to the gateway that has asked for it. An older sidecar knows no claim that is
    given back, and is asked to end as lost.
    """
    maker, other = world.gateways
    sandbox, claim = answer_lost(world)
    world.words.clear()
    [end] = calls(world, "end", of=maker)
    world.arrive(end)
    words = [one for one in world.words if one.gateway is maker]
    world.words.clear()  # the other gateway hears nothing of it
    if heard in ("its word", "an older word"):
        for word in words:
            if heard == "an older word":
                word.state["verdict"] = "sandbox_lost"
            world.hear(word)
        world.settle()
    elif heard == "of its pod":
        while backlog := world.backlogs():
            world.tell(backlog[0])
    for call in [one for one in world.calls if one.gateway is maker and one is not end]:
        world.arrive(call)
        world.give_answer(call)
    world.give_answer(end)
    assert "word" not in heard or not calls(world, "end", of=maker), "it has said that it has ended"
    for _ in range(6):
        world.quiet()
        world.pass_time(5.0)
        known = other.directory.get(sandbox.id)
        assert known is None or known.live
    for gateway in (maker, other):
        known = gateway.directory.get(sandbox.id)
        assert known is not None
        assert known.status == "RUNNING"
        assert known.instance_id != claim.instance_id
    record = world.sandbox(claim.instance_id)
    assert record.status.verdict == "given_back"


@pytest.mark.parametrize("world", [False], ids=["cold"], indirect=True)
def test_a_claim_that_another_gateway_has_given_back_is_no_delete_at_its_own(world: KubernetesWorld) -> None:
    """Its own gateway deleted the instance's Sandbox, which is how a sandbox's delete looks."""
    maker, _ = world.gateways
    assert maker.create() is not None
    world.quiet(until=lambda: bool(calls(world, "claim", of=maker)))
    [claim] = calls(world, "claim", of=maker)
    world.arrive(claim)
    world.words.clear()
    world.die(world.sidecars[claim.instance_id], word="given_back")
    for word in [one for one in world.words if one.gateway is maker]:
        world.words.remove(word)
        world.hear(word)
    world.give_answer(claim)
    world.quiet()
    assert world.sandbox(claim.instance_id).status.verdict == "given_back"


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
@pytest.mark.parametrize("heard", ["its answer", "of its pod"])
def test_one_that_is_lost_where_it_is_used_gets_no_other_instance(world: KubernetesWorld, heard: str) -> None:
    """Its callers went on in an empty one, and were not told of what they had lost."""
    maker, other = world.gateways
    sandbox, claim = answer_lost(world)
    sidecar = world.sidecars[claim.instance_id]
    sidecar.used = True
    [end] = calls(world, "end", of=maker)
    world.arrive(end)
    world.give_answer(end)
    world.die(sidecar, word="deadline" if heard == "its answer" else None)
    world.words = [one for one in world.words if one.gateway is other]
    if heard == "of its pod":
        while backlog := world.backlogs():
            world.tell(backlog[0])
    for _ in range(8):
        world.quiet()
        world.pass_time(5.0)
    for gateway in (maker, other):
        known = gateway.directory.get(sandbox.id)
        assert known is None or not known.live
    assert not [one for one in world.sidecars.values() if one.owner is not None]
