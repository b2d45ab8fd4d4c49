"""Lives of sandboxes at several gateways with the whole Kubernetes backend, whose records are messages too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.api_server import SANDBOXES
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call, Sidecar
from tests.gateway.lives_slow_model import SlowLivesModel
from tests.gateway.test_lives_model import choices, pick


class KubernetesLivesModel(SlowLivesModel):
    world: KubernetesWorld

    @initialize(gateways=st.integers(1, 3), reuses=st.booleans(), tells_ips=st.booleans())
    def begin(self, gateways: int, reuses: bool, tells_ips: bool) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.world = KubernetesWorld(Path(self.directory.name), gateways=gateways, reuses=reuses)
        self.world.tells_ips, self.world.late_ips = tells_ips, not tells_ips

    @precondition(lambda self: self.pending())
    @rule(choice=choices)
    def caller_is_answered(self, choice: int) -> None:
        gateway, sandbox = pick(self.pending(), choice)
        gateway.answer_pending(sandbox)

    @precondition(lambda self: self.world.backlogs())
    @rule(choice=choices)
    def watch_tells(self, choice: int) -> None:
        self.world.tell(pick(self.world.backlogs(), choice))

    @precondition(lambda self: self.world.api.watches)
    @rule(choice=choices, rarely=st.integers(0, 3), expires=st.booleans())
    def watch_fails(self, choice: int, rarely: int, expires: bool) -> None:
        if not rarely:
            watch = pick(self.world.api.watches, choice)
            watch.expire() if expires else watch.fail()
            self.world.settle()

    @rule()
    def controller_acts(self) -> None:
        self.world.control()

    @rule(rarely=st.integers(0, 3))
    def all_arrives(self, rarely: int) -> None:
        """What is rare begins where most things have gone well."""
        if not rarely:
            self.world.quiet()

    @precondition(lambda self: self.pending())
    @rule(choice=choices)
    def delete_pending(self, choice: int) -> None:
        gateway, sandbox = pick(self.pending(), choice)
        gateway.delete(sandbox)

    @precondition(lambda self: any(call.kind == "reset" for call in self.world.calls))
    @rule(choice=choices)
    def reset_leaves_something_behind(self, choice: int) -> None:
        self.world.unequal = True
        call = pick([call for call in self.world.calls if call.kind == "reset"], choice)
        if not call.arrived:
            self.world.arrive(call)

    @precondition(lambda self: any(call.kind == "reset" for call in self.world.calls))
    @rule(choice=choices)
    def gateway_is_killed_in_a_reset(self, choice: int) -> None:
        call = pick([call for call in self.world.calls if call.kind == "reset"], choice)
        if call.gateway in self.world.gateways:
            if choice % 2 and not call.arrived:
                self.world.arrive(call)
            self.world.kill(call.gateway)

    @precondition(lambda self: self.recorded())
    @rule(choice=choices, rarely=st.integers(0, 3))
    def record_is_deleted(self, choice: int, rarely: int) -> None:
        """By a user: of a sandbox that runs in a reused pod."""
        if rarely:
            return
        name = pick(self.recorded(), choice)
        self.world.deleted[self.world.sandbox(name).spec.sandbox_id or ""] = self.world.gateways[0]
        self.world.api.delete(SANDBOXES, name)

    @precondition(lambda self: self.world.answered_last in self.world.gateways)
    @rule()
    def gateway_is_killed_that_has_answered_a_delete(self) -> None:
        self.world.kill(self.world.answered_last)

    def compare(self) -> None:
        super().compare()
        assert not self.world.faults.records

    def recorded(self) -> list[str]:
        if not hasattr(self, "world"):
            return []
        resources = [self.world.sandbox(name) for name in self.world.api.objects[SANDBOXES]]
        return [
            one.metadata.name
            for one in resources
            if one.spec.generation is not None and one.status.phase != "Ended"
        ]

    def pending(self) -> list[tuple[Any, Any]]:
        return [(gateway, one) for gateway, one in self.live() if one.status == "PENDING"]


TestKubernetesLives = KubernetesLivesModel.TestCase
# The same examples each time; `make model` looks for others.
TestKubernetesLives.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, derandomize=True
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, listed=False) as world:
        yield world


def test_a_claim_in_an_instance_that_died_ends_no_sandbox_at_another_gateway(world: KubernetesWorld) -> None:
    """Its start's Sandbox went with it, which other gateways took for the sandbox's own end."""
    sandbox, first, claim = claimed_unheard(world)
    world.die(first)
    world.lose_call(claim)
    goes_on(world)
    [second] = [one for one in world.sidecars.values() if one.owner is not None]
    assert second is not first
    for gateway in world.gateways:
        known = gateway.directory.get(sandbox.id)
        assert (known.status, known.instance_id) == ("RUNNING", second.instance_id)


def test_a_sandbox_that_was_deleted_where_its_claim_was_heard_of_gets_no_other_instance(
    world: KubernetesWorld,
) -> None:
    """The gateway that brings it up is asked by nobody, and had not heard of the delete."""
    sandbox, first, claim = claimed_unheard(world)
    world.die(first)
    deleted_and_killed(world, sandbox)
    world.lose_call(claim)
    goes_on(world)
    assert [one for one in world.sidecars.values() if one.claim is not None] == [first]
    for gateway in world.gateways:
        known = gateway.directory.get(sandbox.id)
        assert known is None or known.verdict == "deleted"


def test_a_pending_sandbox_that_was_deleted_elsewhere_gets_no_instance(world: KubernetesWorld) -> None:
    maker, _ = world.gateways
    sandbox = maker.create()
    maker.answer_pending(sandbox)
    for call in [call for call in world.calls if sandbox.id in str(call.body)]:
        world.arrive(call)
        world.give_answer(call)
    while watches := world.backlogs():
        world.tell(watches[0])
    deleted_and_killed(world, sandbox)
    goes_on(world)
    assert not [one for one in world.sidecars.values() if one.owner is not None]


def test_a_start_whose_answer_is_lost_keeps_the_sandbox_that_has_it(world: KubernetesWorld) -> None:
    """Its sidecar was faster than the API server's answer, which never came."""
    gateway = world.gateways[0]
    sandbox = gateway.create()
    [post] = [call for call in world.calls if call.kind == "api"]
    world.arrive(post)
    world.control()
    [sidecar] = world.sidecars.values()
    world.get_ready(sidecar)
    while world.words:
        world.hear(world.words.pop(0))
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    world.give_answer(claim)
    world.lose_call(post)
    goes_on(world)
    assert sidecar.owner == sandbox.id
    assert gateway.directory.get(sandbox.id).status == "RUNNING"


def test_a_delete_while_a_claim_is_under_way_is_answered_once_the_claim_is_given_back(
    world: KubernetesWorld,
) -> None:
    """Its gateway killed before that, other gateways would hear of an owned instance and go on with the sandbox."""
    maker = world.gateways[0]
    sandbox = maker.create()
    world.quiet(until=lambda: any(call.kind == "claim" for call in world.calls))
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    maker.delete(sandbox)
    assert sandbox.id not in world.answered
    world.give_answer(claim)
    assert sandbox.id not in world.answered
    is_told(world, maker, sandbox)
    world.kill(maker)
    goes_on(world)
    assert not [one for one in world.sidecars.values() if one.owner is not None]


def test_a_promise_that_has_ended_is_told_to_gateways_that_start_later(world: KubernetesWorld) -> None:
    """Both that knew of it are killed, and the instance that a claim of it has reached says that it runs."""
    maker, other = world.gateways
    sandbox = maker.create()
    maker.answer_pending(sandbox)
    world.quiet(until=lambda: other.directory.get(sandbox.id) is not None)
    world.quiet(until=lambda: any(call.kind == "claim" for call in world.calls))
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    world.words.clear()
    other.delete(other.directory.get(sandbox.id))
    is_told(world, other, sandbox)
    world.kill(maker)
    world.kill(other)
    goes_on(world)
    assert not [one for one in world.sidecars.values() if one.owner is not None]
    for gateway in world.gateways:
        known = gateway.directory.get(sandbox.id)
        assert known is not None
        assert known.verdict == "deleted"


def test_a_cold_start_whose_sandbox_resource_is_deleted_is_offered_to_no_create(
    world: KubernetesWorld,
) -> None:
    """Its gateway gave it up and died; the controller, which is late, deletes the pod."""
    maker, other = world.gateways
    maker.create()
    [post] = [call for call in world.calls if call.kind == "api"]
    world.arrive(post)
    world.control()
    [sidecar] = world.sidecars.values()
    world.api.delete(SANDBOXES, sidecar.instance_id)
    world.kill(maker)
    world.kill(other)
    gateway = world.gateways[0]
    sandbox = gateway.create()
    world.get_ready(sidecar)
    while world.words:
        world.hear(world.words.pop(0))
    assert not [call for call in world.calls if call.kind == "claim"]
    goes_on(world)
    assert sidecar.claim is None
    assert gateway.directory.get(sandbox.id).status == "RUNNING"


def claimed_unheard(world: KubernetesWorld) -> tuple[Sandbox, Sidecar, Call]:
    """A claim that was accepted, which the other gateway has heard, and the one that asked not yet."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    world.quiet(until=lambda: any(call.kind == "claim" for call in world.calls))
    [claim] = [call for call in world.calls if call.kind == "claim"]
    world.arrive(claim)
    for word in [word for word in world.words if word.gateway is other]:
        world.words.remove(word)
        world.hear(word)
    assert other.directory.get(sandbox.id).status == "RUNNING"
    return sandbox, world.sidecars[claim.instance_id], claim


def deleted_and_killed(world: KubernetesWorld, sandbox: Sandbox) -> None:
    """The second gateway answers a delete, and is killed in that moment."""
    gateway = world.gateways[1]
    gateway.delete(gateway.directory.get(sandbox.id))
    is_told(world, gateway, sandbox)
    world.kill(gateway)


def is_told(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox) -> None:
    """The gateway answers the delete, once all that it waits for has come."""
    for _ in range(20):
        if sandbox.id in world.answered:
            break
        call = next(call for call in world.calls if call.gateway is gateway)
        world.arrive(call)
        world.give_answer(call)
    assert sandbox.id in world.answered


def goes_on(world: KubernetesWorld) -> None:
    for _ in range(10):
        world.quiet()
        world.pass_time(5.0)
    for sidecar in [one for one in world.sidecars.values() if one.owner is not None]:
        world.speak(sidecar, "heartbeat")
    world.quiet()
