"""Lives of sandboxes whose claim ends before its gateway has read the sidecar's answer: by another gateway, or by a loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call, Sidecar


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


def accepted(world: KubernetesWorld, gateway: Gateway, *, key: str | None = None) -> tuple[Sandbox, Call]:
    """A create whose claim a sidecar has accepted; the answer is under way."""
    sandbox = gateway.create(key=key)
    assert sandbox is not None
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    return sandbox, claim


def hear(world: KubernetesWorld, gateway: Gateway, event: str) -> None:
    """What sidecars have said of this arrives there; what gateways tell each other does not."""
    for word in [one for one in world.words if one.gateway is gateway and one.state.get("event") == event]:
        world.words.remove(word)
        world.hear(word)


def take(world: KubernetesWorld, kind: str, gateway: Gateway) -> Call:
    """The only call of its kind from there arrives, and is answered."""
    [call] = [call for call in world.calls if (call.kind, call.gateway) == (kind, gateway)]
    world.arrive(call)
    world.give_answer(call)
    return call


def deleted_at(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox) -> None:
    """By a caller whom that gateway told that it runs, and its slot is reset."""
    hear(world, gateway, "claimed")
    gateway.delete(gateway.directory.get(sandbox.id))
    take(world, "reset", gateway)


def taken_over(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox) -> Sidecar:
    """That gateway follows the create for a retry with its key, takes its maker for dead, and has it now."""
    gateway.create(key="k")
    known = gateway.directory.get(sandbox.id)
    assert known is not None
    gateway.peers.deaf = True
    world.pass_time(2.0)
    gateway.peers.deaf = False
    while known.status == "PENDING":  # the first one may be that of the maker's claim
        take(world, "claim", gateway)
    assert known.instance_id is not None
    return world.sidecars[known.instance_id]


def test_one_that_was_deleted_elsewhere_before_its_answer_is_deleted(world: KubernetesWorld) -> None:
    """Its gateway heard of the reset alone, and told its caller that the sandbox was lost."""
    maker, other = world.gateways
    sandbox, claim = accepted(world, maker)
    deleted_at(world, other, sandbox)
    world.words = [word for word in world.words if "news" not in word.state]
    hear(world, maker, "ready")
    assert sandbox.status == "PENDING"
    world.give_answer(claim)
    assert (sandbox.status, sandbox.verdict) == ("TERMINATED", "deleted")
    world.quiet()
    assert not [one for one in world.sidecars.values() if one.owner is not None]


def test_the_end_of_the_next_sandbox_is_not_that_of_one_that_waits_for_its_answer(
    world: KubernetesWorld,
) -> None:
    maker, other = world.gateways
    sandbox, claim = accepted(world, maker)
    deleted_at(world, other, sandbox)
    world.pass_time(0.1)
    world.words.clear()
    sidecar = world.sidecars[claim.instance_id]
    after = next_in(world, other, sidecar)
    sidecar.phase, sidecar.verdict = "ended", "oom"
    world.speak(sidecar, "ended", to=[other])
    hear(world, other, "ended")
    world.pass_time(0.1)
    while news := [word for word in world.words if "news" in word.state]:
        world.words.remove(news[0])
        world.hear(news[0])
    known = maker.directory.get(after.id)
    assert known is not None
    assert known.verdict == "oom"
    world.speak(sidecar, "ended", to=[maker])
    hear(world, maker, "ended")
    world.give_answer(claim)
    assert sandbox.verdict == "deleted"


def next_in(world: KubernetesWorld, gateway: Gateway, sidecar: Sidecar) -> Sandbox:
    """The next sandbox of that slot; the gateway tries the others, too."""
    for _ in range(3):
        sandbox = gateway.create()
        assert sandbox is not None
        take(world, "claim", gateway)
        if sidecar.owner == sandbox.id:
            world.words.clear()
            return sandbox
    raise AssertionError("no create gets the slot")


def test_one_whose_claim_another_gateway_has_given_back_follows_the_other_claim(
    world: KubernetesWorld,
) -> None:
    """It ended with the verdict of the claim that was given back, and its end was written for the one that runs."""
    maker, other = world.gateways
    sandbox, claim = accepted(world, maker, key="k")
    where = taken_over(world, other, sandbox)
    hear(world, other, "claimed")
    take(world, "end", other)
    hear(world, maker, "ended")
    world.give_answer(claim)
    assert sandbox.status == "PENDING"
    goes_on(world)
    for gateway in (maker, other):
        known = gateway.directory.get(sandbox.id)
        assert known is not None
        assert (known.status, known.instance_id) == ("RUNNING", where.instance_id)
    assert [one.owner for one in world.sidecars.values() if one.owner is not None] == [sandbox.id]


def test_one_whose_given_back_pod_has_ended_follows_the_other_claim(world: KubernetesWorld) -> None:
    """Its gateway did not hear from the sidecar why: the pod was lost, as far as it could see."""
    maker, other = world.gateways
    sandbox, claim = accepted(world, maker, key="k")
    where = taken_over(world, other, sandbox)
    hear(world, other, "claimed")
    take(world, "end", other)
    world.words.clear()
    while backlog := world.backlogs():
        world.tell(backlog[0])
    world.give_answer(claim)
    assert sandbox.status == "PENDING"
    goes_on(world)
    known = maker.directory.get(sandbox.id)
    assert known is not None
    assert (known.status, known.instance_id) == ("RUNNING", where.instance_id)


def test_one_whose_pod_was_lost_has_its_end_once_no_gateway_has_another_claim(world: KubernetesWorld) -> None:
    maker, _ = world.gateways
    sandbox, claim = accepted(world, maker)
    world.die(world.sidecars[claim.instance_id])
    while backlog := world.backlogs():
        world.tell(backlog[0])
    world.give_answer(claim)
    goes_on(world)
    assert (sandbox.status, sandbox.verdict) == ("ERROR", "sandbox_lost")


def test_one_whose_instance_is_discarded_gets_another(world: KubernetesWorld) -> None:
    """Its sidecar answered a poll with a document that no gateway can read."""
    maker, _ = world.gateways
    sandbox, claim = accepted(world, maker)
    discarded(world, claim)
    goes_on(world)
    assert sandbox.status == "RUNNING"
    assert sandbox.instance_id != claim.instance_id
    assert [one.owner for one in world.sidecars.values() if one.owner is not None] == [sandbox.id]


def test_one_whose_claims_are_given_back_again_and_again_fails(world: KubernetesWorld) -> None:
    maker, _ = world.gateways
    sandbox, claim = accepted(world, maker)
    discarded(world, claim)
    losses = 1
    while sandbox.status == "PENDING":
        world.quiet(until=lambda: any(call.kind == "claim" for call in world.calls))
        world.pass_time(1.0)
        for call in [call for call in world.calls if call.kind == "claim"]:
            world.arrive(call)
            discarded(world, call)
            losses += 1
    assert losses == 6
    assert (sandbox.verdict, sandbox.message) == (
        "start_failed",
        "its instance was discarded while it was claimed",
    )


def discarded(world: KubernetesWorld, claim: Call) -> None:
    """Its gateway gives it up, and then reads that it was accepted."""
    instance = claim.gateway.backend.instance(claim.instance_id)
    claim.gateway._run(lambda: claim.gateway.webhooks.found(instance, {"phase": 7}))
    world.give_answer(claim)


def goes_on(world: KubernetesWorld) -> None:
    for _ in range(6):
        world.quiet()
        world.pass_time(5.0)
    world.quiet()
