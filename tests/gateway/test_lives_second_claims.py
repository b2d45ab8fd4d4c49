"""Lives of a sandbox in use of which only its sidecar can tell: its gateway has died, and another one follows its create."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubernetesWorld]:
    """Its parameter: whether its pods are warm before there are creates."""
    with faultless_world(tmp_path, reuses=request.param) as world:
        yield world


def calls(world: KubernetesWorld, kind: str, *, of: Gateway) -> list[Call]:
    return [call for call in world.calls if (call.kind, call.gateway) == (kind, of)]


def followed(world: KubernetesWorld) -> tuple[Sandbox, Call]:
    """A create that the other gateway follows for a retry; its claim is under way."""
    maker, other = world.gateways
    sandbox = maker.create(key="k")
    assert sandbox is not None
    other.create(key="k")
    world.quiet(until=lambda: bool(calls(world, "claim", of=maker)))
    while backlog := world.backlogs():
        world.tell(backlog[0])
    [claim] = calls(world, "claim", of=maker)
    return sandbox, claim


def in_use(world: KubernetesWorld, claim: Call) -> None:
    """Its caller has it, and uses it; then its gateway dies, and no other one has heard of the claim."""
    world.arrive(claim)
    world.give_answer(claim)
    world.sidecars[claim.instance_id].used = True
    world.words.clear()
    world.kill(claim.gateway)


def is_kept(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox, claim: Call) -> None:
    """It runs where it is used, and nowhere else."""
    for _ in range(6):
        world.quiet()
        world.pass_time(5.0)
    known = gateway.directory.get(sandbox.id)
    assert known is not None
    assert (known.status, known.instance_id) == ("RUNNING", claim.instance_id)
    owned = {one.instance_id: one.owner for one in world.sidecars.values() if one.owner is not None}
    assert owned == {claim.instance_id: sandbox.id}


@pytest.mark.parametrize(
    ("world", "answered"),
    [
        pytest.param(True, "never", id="not polled before"),
        pytest.param(False, "before", id="polled before the claim"),
        pytest.param(False, "after", id="being polled at the claim"),
    ],
    indirect=["world"],
)
def test_it_is_not_claimed_again_before_its_sidecar_was_asked(world: KubernetesWorld, answered: str) -> None:
    """The other gateway took an answer from before the claim, or none for a second, for one that there is no claim.

    `answered`: when its poll from before the claim is answered. It polls pods that start for a create all the time.
    """
    _, other = world.gateways
    sandbox, claim = followed(world)
    polls = calls(world, "state", of=other)
    assert bool(polls) == (answered != "never")
    for one in polls:
        world.arrive(one)
    if answered == "before":
        for one in polls:
            world.give_answer(one)
    in_use(world, claim)
    if answered == "after":
        for one in polls:
            world.give_answer(one)
    for _ in range(5):
        world.pass_time(0.5)
        assert not calls(world, "claim", of=other)
        assert not [one for one in calls(world, "api", of=other) if one.body["method"] == "POST"]
    is_kept(world, other, sandbox, claim)


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
def test_a_claim_without_an_answer_stays_where_it_is_used(world: KubernetesWorld) -> None:
    """Its gateway gave it back and claimed another instance, and what the caller had done in the first was lost."""
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
    world.sidecars[claim.instance_id].used = True
    for gateway in (other, maker):
        is_kept(world, gateway, sandbox, claim)
