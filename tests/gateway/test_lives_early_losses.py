"""Lives of a sandbox whose instance is lost before its gateway has the answer to its claim: that need not be its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.backends.kubernetes.translate import safe_name
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kept import calls
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_kubernetes_gateway import KubernetesGateway
from tests.gateway.lives_messages import Call
from tests.gateway.test_lives_early_ends import ends, goes_on, told

COLD = pytest.mark.parametrize("world", [False], ids=["cold"], indirect=True)
WARM = pytest.mark.parametrize("world", [True], ids=["warm"], indirect=True)
BOTH = pytest.mark.parametrize("world", [True, False], ids=["warm", "cold"], indirect=True)
LOSSES = pytest.mark.parametrize("verdict", ["evicted", "sandbox_lost"])
ORDERS = pytest.mark.parametrize("first", ["the answer", "the watch"])


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KubernetesWorld]:
    """Its parameter: whether its pods are warm before there are creates."""
    with faultless_world(tmp_path, reuses=request.param) as world:
        yield world


def written(world: KubernetesWorld, *, first: str, seconds: float = 0.5) -> None:
    """What gateways write and tell arrives. `first`: by which of the two a writer learns of its own write."""
    until = world.loop.time() + seconds
    while world.loop.time() < until:
        for call in [one for gateway in world.gateways for one in calls(world, "api", of=gateway)]:
            world.arrive(call)
            if first == "the watch":
                watched(world)
            world.give_answer(call)
        watched(world)
        for word in [one for one in world.words if "news" in one.state]:
            world.words.remove(word)
            world.hear(word)
        world.pass_time(0.0625)


def watched(world: KubernetesWorld) -> None:
    while backlog := world.backlogs():
        world.tell(backlog[0])


def claimed(
    world: KubernetesWorld, *, key: str | None = None, first: str = "the answer"
) -> tuple[Sandbox, Call]:
    """A claim that its sidecar has accepted. The other gateway knows the pending create alone."""
    maker, other = world.gateways
    sandbox = maker.create(key=key)
    assert sandbox is not None
    world.quiet(until=lambda: bool(calls(world, "claim", of=maker)))
    [claim] = calls(world, "claim", of=maker)
    assert isinstance(maker, KubernetesGateway)
    maker.answer_pending(sandbox)
    written(world, first=first)
    assert known(other, sandbox).status == "PENDING"
    world.arrive(claim)
    world.words = [word for word in world.words if "news" in word.state]
    return sandbox, claim


def known(gateway: Gateway, sandbox: Sandbox) -> Sandbox:
    found = gateway.directory.get(sandbox.id)
    assert found is not None
    return found


def outcomes(world: KubernetesWorld, sandbox: Sandbox) -> set[tuple[str, str | None]]:
    return {(known(one, sandbox).status, known(one, sandbox).verdict) for one in world.gateways}


def owners(world: KubernetesWorld) -> list[str]:
    return [one.owner for one in world.sidecars.values() if one.owner is not None]


@BOTH
@LOSSES
@ORDERS
def test_a_loss_ends_nothing_at_a_gateway_that_knows_the_pending_create_alone(
    world: KubernetesWorld, verdict: str, first: str
) -> None:
    """It told ERROR, which its caller took for the end, while the sandbox got another instance."""
    maker, _ = world.gateways
    sandbox, claim = claimed(world, first=first)
    ends(world, claim, verdict)
    assert not calls(world, "end", of=maker), "it has said that it has ended"
    written(world, first=first)
    assert outcomes(world, sandbox) == {("PENDING", None)}
    assert maker.backend.instance(claim.instance_id) is None
    waiting = world.sandbox(safe_name(sandbox.id))
    assert waiting.spec.waits
    assert waiting.status.verdict is None
    world.lose_call(claim)
    written(world, first=first)
    assert outcomes(world, sandbox) == {("PENDING", None)}
    goes_on(world)
    [(status, _, instance_id)] = told(world, sandbox)
    assert status == "RUNNING"
    assert instance_id != claim.instance_id
    assert owners(world) == [sandbox.id]


@BOTH
@LOSSES
@ORDERS
def test_a_loss_is_the_end_once_the_others_were_asked(
    world: KubernetesWorld, verdict: str, first: str
) -> None:
    """What its own gateway had written of the instance ended it there before it had asked."""
    _, other = world.gateways
    sandbox, claim = claimed(world, first=first)
    ends(world, claim, verdict)
    world.give_answer(claim)
    written(world, first=first)
    assert outcomes(world, sandbox) == {("PENDING", None)}
    goes_on(world)
    assert outcomes(world, sandbox) == {("ERROR", verdict)}
    assert {instance_id for _, _, instance_id in told(world, sandbox)} <= {claim.instance_id, None}
    assert not owners(world)
    world.kill(other)
    goes_on(world)
    assert outcomes(world, sandbox) == {("ERROR", verdict)}, "also at one that starts later"


@BOTH
@ORDERS
def test_an_end_is_told_alike_where_the_pending_create_alone_is_known(
    world: KubernetesWorld, first: str
) -> None:
    sandbox, claim = claimed(world, first=first)
    ends(world, claim, "deadline")
    written(world, first=first)
    assert outcomes(world, sandbox) == {("TIMEOUT", "deadline")}
    world.give_answer(claim)
    goes_on(world)
    assert outcomes(world, sandbox) == {("TIMEOUT", "deadline")}
    assert {instance_id for _, _, instance_id in told(world, sandbox)} <= {claim.instance_id, None}
    assert not owners(world)


@COLD
def test_the_loss_of_a_cold_start_whose_sidecar_is_silent_is_written(world: KubernetesWorld) -> None:
    """Its gateway asked it to end, had no answer, and left the instance to nobody, since a create was claiming it."""
    maker, _ = world.gateways
    _, claim = claimed(world)
    ends(world, claim, "evicted")
    for end in calls(world, "end", of=maker):
        world.lose_call(end)
    written(world, first="the answer")
    assert world.sandbox(claim.instance_id).status.verdict == "given_back"
    assert maker.backend.instance(claim.instance_id) is None


@WARM
def test_an_end_that_another_gateway_has_heard_of_is_found_by_the_search(world: KubernetesWorld) -> None:
    """Its own gateway saw that the pod was over, and not why."""
    _, other = world.gateways
    sandbox, claim = claimed(world)
    world.die(world.sidecars[claim.instance_id], word="deadline")
    for word in [one for one in world.words if one.gateway is other]:
        world.words.remove(word)
        world.hear(word)
    world.words.clear()
    assert known(other, sandbox).verdict == "deadline"
    watched(world)
    world.pass_time(0.1)
    world.words.clear()
    assert sandbox.status == "PENDING"
    world.give_answer(claim)
    goes_on(world)
    assert outcomes(world, sandbox) == {("TIMEOUT", "deadline")}
    world.kill(other)
    goes_on(world)
    assert outcomes(world, sandbox) == {("TIMEOUT", "deadline")}, "also at one that starts later"


@COLD
@LOSSES
@ORDERS
def test_one_that_another_gateway_has_taken_over_outlives_the_loss_of_its_first_claim(
    world: KubernetesWorld, verdict: str, first: str
) -> None:
    """Its own gateway ended it by what that had written of the lost instance, while it ran in the other one's."""
    maker, other = world.gateways
    sandbox, claim = claimed(world, key="k")
    taken_over(world, other, sandbox, but=claim)
    ends(world, claim, verdict)
    world.give_answer(claim)
    written(world, first=first)
    assert known(maker, sandbox).live
    goes_on(world)
    [(status, _, instance_id)] = told(world, sandbox)
    assert status == "RUNNING"
    assert instance_id != claim.instance_id
    assert owners(world) == [sandbox.id]


def taken_over(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox, *, but: Call) -> None:
    """That gateway follows the create for a retry, takes its maker for dead, and claims. `but`: has no answer."""
    assert isinstance(gateway, KubernetesGateway)
    gateway.create(key="k")
    gateway.peers.deaf = True
    world.pass_time(2.0)
    gateway.peers.deaf = False
    for _ in range(40):
        if known(gateway, sandbox).status == "RUNNING":
            break
        for call in [one for one in world.calls if one is not but]:
            world.arrive(call)
            world.give_answer(call)
        watched(world)
        world.control()
        for sidecar in [one for one in world.sidecars.values() if one.phase == "starting"]:
            world.get_ready(sidecar)
        for word in [one for one in world.words if one.instance_id != but.instance_id]:
            world.words.remove(word)
            if word.gateway is gateway:
                world.hear(word)
        world.pass_time(0.0625)
    assert known(gateway, sandbox).status == "RUNNING"
    world.words = [word for word in world.words if "news" in word.state]


@WARM
@pytest.mark.parametrize("key", [None, "k"])
def test_an_end_that_another_gateway_hears_of_during_the_search_is_no_loss(
    world: KubernetesWorld, key: str | None
) -> None:
    maker, other = world.gateways
    sandbox, claim = claimed(world, key=key)
    world.die(world.sidecars[claim.instance_id], word="deadline")
    late = [word for word in world.words if word.gateway is other and "news" not in word.state]
    world.words = [word for word in world.words if "news" in word.state]
    for _ in range(40):  # the maker learns of its pod's end first
        watched(world)
        world.pass_time(0.25)
        if maker.backend.instance(claim.instance_id) is None:
            break
    world.words = [word for word in world.words if "news" in word.state]
    world.give_answer(claim)
    world.pass_time(0.25)
    assert {known[0] for known in told(world, sandbox)} == {"PENDING"}, "it asks the other one"
    for word in late:
        world.hear(word)
    written(world, first="the answer", seconds=0.25)
    goes_on(world)
    assert {known[:2] for known in told(world, sandbox)} == {("TIMEOUT", "deadline")}


@WARM
def test_the_last_word_on_an_earlier_owner_is_told_while_a_create_waits_for_its_slot(
    world: KubernetesWorld,
) -> None:
    """The create's gateway heard of that owner for the first time, and told nobody."""
    maker, other = world.gateways
    owner = other.create()
    assert owner is not None
    world.quiet(until=lambda: bool(calls(world, "claim", of=other)))
    [first] = calls(world, "claim", of=other)
    world.arrive(first)
    world.give_answer(first)
    world.words = [word for word in world.words if word.gateway is not maker]
    while not [one for one in calls(world, "claim", of=maker) if one.instance_id == first.instance_id]:
        assert maker.create() is not None
    world.die(world.sidecars[first.instance_id], word="oom")
    maker_watches = [one for one in world.backlogs() if one.reader is maker]
    while maker_watches:
        world.tell(maker_watches[0])
        maker_watches = [one for one in world.backlogs() if one.reader is maker]
    assert maker.backend.instance(first.instance_id) is None
    for word in [one for one in world.words if one.gateway is maker]:
        world.words.remove(word)
        world.hear(word)
    world.words.clear()
    assert owner.status == "RUNNING"
    world.pass_time(0.1)
    for word in [one for one in world.words if "news" in one.state]:
        world.words.remove(word)
        world.hear(word)
    assert owner.verdict == "oom"
    goes_on(world)
