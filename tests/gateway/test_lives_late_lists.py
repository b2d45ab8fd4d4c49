"""Lives of sandboxes while the API server's lists are older than what a gateway has written, or its answers are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gateway.api_server import SANDBOXES, List
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Call

World = Callable[..., KubernetesWorld]


@pytest.fixture
def world_of(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield lambda *, reuses: stack.enter_context(faultless_world(tmp_path, gateways=1, reuses=reuses))


def relist(world: KubernetesWorld) -> List:
    """A list of all Sandboxes begins, because the API server no longer has the changes since the last one."""
    [watch] = [watch for watch in world.api.watches if watch.collection == SANDBOXES]
    watch.expire()
    world.settle()
    world.pass_time(0.5)
    [listed] = world.api.lists
    return listed


def taken(world: KubernetesWorld) -> Call:
    """The API server takes the write that is on its way, and says so."""
    [call] = [call for call in world.calls if call.kind == "api"]
    world.arrive(call)
    world.give_answer(call)
    return call


def test_a_cold_start_that_is_newer_than_a_list_goes_on(world_of: World) -> None:
    world = world_of(reuses=False)
    [gateway] = world.gateways
    listed = relist(world)
    sandbox = gateway.create()
    started = taken(world).body["body"]["metadata"]["name"]
    world.tell(listed)
    goes_on(world)
    assert sandbox is not None
    assert (sandbox.status, sandbox.instance_id) == ("RUNNING", started)
    assert list(world.sidecars) == [started]


def test_a_pending_create_that_is_newer_than_a_list_waits_on(world_of: World) -> None:
    world = world_of(reuses=False)
    [gateway] = world.gateways
    sandbox = gateway.create()
    assert sandbox is not None
    taken(world)
    listed = relist(world)
    gateway.answer_pending(sandbox)
    taken(world)
    world.tell(listed)
    assert sandbox.status == "PENDING"
    goes_on(world)
    assert sandbox.status == "RUNNING"


def test_a_sandbox_whose_record_is_newer_than_a_list_runs_on(world_of: World) -> None:
    world = world_of(reuses=True)
    [gateway] = world.gateways
    sandbox = gateway.create()
    assert sandbox is not None
    world.quiet()
    world.pass_time(5.0)
    listed = relist(world)
    for seconds in (5.0, 1.0):  # its time comes, and the pause after the last claim
        world.pass_time(seconds)
    taken(world)
    world.tell(listed)
    goes_on(world)
    assert sandbox.status == "RUNNING"
    assert world.sandbox(sandbox.id).status.phase != "Ended"


def test_a_record_that_went_before_a_list_ends_its_sandbox(world_of: World) -> None:
    world = world_of(reuses=True)
    [gateway] = world.gateways
    sandbox = gateway.create()
    assert sandbox is not None
    goes_on(world)
    world.deleted[sandbox.id] = gateway
    world.api.delete(SANDBOXES, sandbox.id)
    world.tell(relist(world))
    goes_on(world)
    assert (sandbox.status, sandbox.verdict) == ("TERMINATED", "deleted")


def test_a_cold_start_whose_answer_is_lost_needs_no_record_of_its_claim(world_of: World) -> None:
    """Its Sandbox says for whom it was made: the gateway knows it, since its sidecar has reported."""
    world = world_of(reuses=False)
    [gateway] = world.gateways
    sandbox = gateway.create()
    [post] = [call for call in world.calls if call.kind == "api"]
    world.arrive(post)
    world.control()
    [sidecar] = world.sidecars.values()
    world.get_ready(sidecar)
    while world.words:
        world.hear(world.words.pop(0))
    world.lose_call(post)
    [claim] = world.calls
    world.arrive(claim)
    world.give_answer(claim)
    world.pass_time(1.0)
    assert world.calls == []
    assert sandbox is not None
    assert sandbox.status == "RUNNING"


def goes_on(world: KubernetesWorld) -> None:
    for _ in range(5):
        world.quiet()
        world.pass_time(5.0)
    world.quiet()
