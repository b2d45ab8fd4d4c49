"""Lives of a sandbox that ends in its instance before its gateway has the answer to its claim, while another one serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kept import calls
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_kubernetes_gateway import KubernetesGateway
from tests.gateway.lives_messages import Call


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubernetesWorld]:
    """Its parameter: whether its pods are warm before there are creates."""
    with faultless_world(tmp_path, reuses=request.param) as world:
        yield world


def accepted(world: KubernetesWorld) -> tuple[Sandbox, Call]:
    """A claim that its sidecar has accepted, as the other gateway knows; the answer is under way."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    world.quiet(until=lambda: bool(calls(world, "claim", of=maker)))
    [claim] = calls(world, "claim", of=maker)
    world.arrive(claim)
    heard(world, other)
    known = other.directory.get(sandbox.id)
    assert known is not None
    assert known.status == "RUNNING"
    world.words = [word for word in world.words if "news" in word.state]
    return sandbox, claim


def heard(world: KubernetesWorld, gateway: Gateway) -> None:
    """What sidecars have said arrives at this gateway, and what it then does comes about."""
    for word in [one for one in world.words if one.gateway is gateway and "news" not in one.state]:
        world.words.remove(word)
        world.hear(word)


def ends(world: KubernetesWorld, claim: Call, verdict: str) -> None:
    """Only the gateway whose claim it is hears of it."""
    world.die(world.sidecars[claim.instance_id], word=verdict)
    maker, other = world.gateways
    world.words = [word for word in world.words if word.gateway is not other or "news" in word.state]
    heard(world, maker)


def goes_on(world: KubernetesWorld) -> None:
    for pause in (0.5,) * 8 + (5.0,) * 6:
        world.quiet()
        world.pass_time(pause)
    world.quiet()


def told(world: KubernetesWorld, sandbox: Sandbox) -> set[tuple[str, str | None, str | None]]:
    """What each gateway says of it."""
    known = [gateway.directory.get(sandbox.id) for gateway in world.gateways]
    return {(one.status, one.verdict, one.instance_id) for one in known if one is not None}


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
@pytest.mark.parametrize("is_answered", [True, False], ids=["late", "lost"])
@pytest.mark.parametrize("is_handed_out", [True, False], ids=["handed out", "not yet"])
def test_its_end_is_the_same_at_all_gateways(
    world: KubernetesWorld, is_answered: bool, is_handed_out: bool
) -> None:
    """Its gateway deleted the instance's Sandbox as that of no sandbox: the others told `deleted`, and ended the next one."""
    maker, _ = world.gateways
    sandbox, claim = accepted(world)
    if is_handed_out:
        assert isinstance(maker, KubernetesGateway)
        maker.answer_pending(sandbox)
    ends(world, claim, "deadline")
    assert told(world, sandbox) >= {("TIMEOUT", "deadline", claim.instance_id)}
    for call in calls(world, "api", of=maker):
        world.arrive(call)
        world.give_answer(call)
    if is_answered:
        world.give_answer(claim)
    else:
        world.lose_call(claim)
    goes_on(world)
    assert told(world, sandbox) == {("TIMEOUT", "deadline", claim.instance_id)}
    assert all(gateway.directory.get(sandbox.id) for gateway in world.gateways)
    assert not [one for one in world.sidecars.values() if one.owner is not None]
    assert all(gateway.backend.instance(claim.instance_id) is None for gateway in world.gateways)


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
@pytest.mark.parametrize("verdict", ["evicted", "sandbox_lost"])
def test_its_loss_is_the_same_at_all_gateways(world: KubernetesWorld, verdict: str) -> None:
    """No other gateway has it in another instance, so that the loss is its end."""
    sandbox, claim = accepted(world)
    ends(world, claim, verdict)
    world.give_answer(claim)
    goes_on(world)
    found = told(world, sandbox)
    assert {(status, last) for status, last, _ in found} == {("ERROR", verdict)}
    assert {instance_id for _, _, instance_id in found} <= {claim.instance_id, None}


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
def test_the_next_instance_of_one_that_was_evicted_is_left_alone(world: KubernetesWorld) -> None:
    """Its answer is lost, too, so that another instance is claimed: the other gateway had heard of a delete, and ended that."""
    sandbox, claim = accepted(world)
    ends(world, claim, "evicted")
    world.lose_call(claim)
    goes_on(world)
    [(status, verdict, instance_id)] = told(world, sandbox)
    assert (status, verdict) == ("RUNNING", None)
    assert instance_id != claim.instance_id
    assert [one.owner for one in world.sidecars.values() if one.owner is not None] == [sandbox.id]


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
@pytest.mark.parametrize("verdict", ["deadline", "evicted", "sandbox_lost"])
def test_the_end_of_one_in_use_that_is_asked_to_end_is_the_same_at_all_gateways(
    world: KubernetesWorld, verdict: str
) -> None:
    """Nobody recorded it: the others told what its pod looked like, and its instance was left to the watch."""
    maker, _ = world.gateways
    sandbox, claim = accepted(world)
    world.sidecars[claim.instance_id].used = True
    world.lose_call(claim)
    [again] = calls(world, "claim", of=maker)
    world.arrive(again)
    world.lose_call(again)
    [end] = calls(world, "end", of=maker)
    world.arrive(end)  # it is in use, and stays
    ends(world, claim, verdict)
    world.give_answer(end)
    for call in calls(world, "end", of=maker):
        world.arrive(call)
        world.give_answer(call)
    assert maker.backend.instance(claim.instance_id) is None
    goes_on(world)
    found = told(world, sandbox)
    assert {last for _, last, _ in found} == {verdict}
    assert {instance_id for _, _, instance_id in found} <= {claim.instance_id, None}
