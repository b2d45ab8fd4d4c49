"""Lives of a sandbox in use of which only its sidecar can tell: its gateway has died, and another one follows its create."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.api_server import PODS
from tests.gateway.lives_kept import calls, is_kept
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call, Sidecar


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubernetesWorld]:
    """Its parameter: whether its pods are warm before there are creates."""
    with faultless_world(tmp_path, reuses=request.param) as world:
        yield world


def claiming(world: KubernetesWorld, *, is_followed: bool = False) -> tuple[Sandbox, Call]:
    """A create whose claim is under way. `is_followed`: the other gateway has had a retry of it, and follows it."""
    maker, other = world.gateways
    sandbox = maker.create(key="k")
    assert sandbox is not None
    if is_followed:
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
    sandbox, claim = claiming(world, is_followed=True)
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


@pytest.mark.parametrize("world", [True], ids=["warm"], indirect=True)
@pytest.mark.parametrize("how", ["starts again", "refuses connections"])
def test_it_is_not_claimed_again_while_its_sidecar_restarts(world: KubernetesWorld, how: str) -> None:
    """A refusal, or a sidecar that has not built its sandbox anew, was an answer: it named no owner."""
    _, other = world.gateways
    sandbox, claim = claiming(world, is_followed=True)
    in_use(world, claim)
    sidecar = world.sidecars[claim.instance_id]
    sidecar.phase = "starting"
    for _ in range(10):
        for poll in calls(world, "state", of=other):
            if poll.instance_id == claim.instance_id and how == "refuses connections":
                world.lose_call(poll)
            else:
                world.arrive(poll)
                world.give_answer(poll)
        world.pass_time(0.25)
        assert not calls(world, "claim", of=other)
        assert not [one for one in calls(world, "api", of=other) if one.body["method"] == "POST"]
    sidecar.phase = "claimed"
    is_kept(world, other, sandbox, claim)


@pytest.mark.parametrize("world", [True], ids=["warm"], indirect=True)
@pytest.mark.parametrize("asks", ["the follower", "itself"])
def test_it_is_not_claimed_again_once_its_gateway_has_come_back(world: KubernetesWorld, asks: str) -> None:
    """The gateway that had come back had polled it once, while it was applying the claim, and knew of no claim.

    `asks`: which of them would go on with its create.
    """
    maker, other = world.gateways
    sandbox, claim = claiming(world, is_followed=True)
    if asks == "itself":
        maker.answered(sandbox)  # so it is on its disk
    sidecar = world.sidecars[claim.instance_id]
    sidecar.claiming = True
    world.settle_timeout, world.come_back = 5.0, True
    world.words.clear()
    world.kill(maker, keep_disk=asks == "itself")
    back = world.gateways[0]
    for _ in range(8):
        for poll in [one for one in world.calls if one.kind == "state"]:
            world.arrive(poll)
            world.give_answer(poll)
        world.pass_time(0.25)
        for gateway in (back, other):
            assert not calls(world, "claim", of=gateway)
    world.arrive(claim)
    sidecar.claiming, sidecar.used = False, True
    world.words.clear()
    for gateway in (other, back):
        is_kept(world, gateway, sandbox, claim)


@pytest.mark.parametrize("world", [False], ids=["cold"], indirect=True)
def test_it_is_not_claimed_again_before_its_pods_address_is_known(world: KubernetesWorld) -> None:
    """Its pod was taken for one that waits for a node: only its own gateway had heard its sidecar."""
    maker, other = world.gateways
    world.tells_ips = False

    def get_ready(sidecar: Sidecar) -> None:
        sidecar.phase = "warm"
        world.speak(sidecar, "ready", to=[maker])

    world.get_ready = get_ready
    sandbox, claim = claiming(world, is_followed=True)
    in_use(world, claim)
    for _ in range(8):
        for poll in calls(world, "state", of=other):
            world.lose_call(poll)  # DNS has no address yet either
        world.pass_time(0.25)
        assert not [one for one in calls(world, "api", of=other) if one.body["method"] == "POST"]
    pod = world.api.objects[PODS][claim.instance_id]
    ip = world.sidecars[claim.instance_id].address.partition(":")[0]
    world.api.put(PODS, claim.instance_id, pod | {"status": pod["status"] | {"podIP": ip}})
    is_kept(world, other, sandbox, claim)


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
def test_no_new_create_has_its_key_before_its_sidecar_was_asked(world: KubernetesWorld) -> None:
    """The retry of a create of which no other gateway had heard took the answer that others may be silent for a no."""
    _, other = world.gateways
    sandbox, claim = claiming(world)
    in_use(world, claim)
    retried = other.create(key="k")
    assert retried is not None
    for _ in range(5):
        world.pass_time(0.5)
        assert not calls(world, "claim", of=other)
        assert not [one for one in calls(world, "api", of=other) if one.body["method"] == "POST"]
    is_kept(world, other, sandbox, claim)


@pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
def test_no_new_create_has_its_key_while_its_gateway_starts_again(world: KubernetesWorld) -> None:
    """Nobody had asked that gateway anything while it was dead, so that nobody looked for its claims."""
    _, other = world.gateways
    sandbox, claim = claiming(world)
    world.settle_timeout, world.come_back = 5.0, True
    in_use(world, claim)
    retried = other.create(key="k")
    assert retried is not None
    for _ in range(4):
        world.pass_time(0.5)
        assert not calls(world, "claim", of=other)
        assert not [one for one in calls(world, "api", of=other) if one.body["method"] == "POST"]
    is_kept(world, other, sandbox, claim)


def test_a_sidecar_that_goes_in_a_search_is_not_polled_for_ever(tmp_path: Path) -> None:
    """It was, since its last poll had no answer."""
    with faultless_world(tmp_path, gateways=1, listed=False) as world:
        [maker] = world.gateways
        maker.create()
        [start] = calls(world, "api", of=maker)
        world.arrive(start)
        world.control()
        [sidecar] = world.sidecars.values()
        world.die(sidecar)
        world.kill(maker)
        world.control()
        world.control()
        for _ in range(8):
            world.quiet()
            world.pass_time(5.0)
        assert not calls(world, "state", of=world.gateways[0])
