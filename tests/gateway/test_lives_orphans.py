"""Lives of sandboxes whose caller hangs up on its create, and may come back through another gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_gateway.sandboxes import Sandbox
from sandlot_gateway.sidecars import SidecarError

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_kubernetes_gateway import KubernetesGateway

GRACE = 60.0  # of the gateways


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


@pytest.fixture
def full(tmp_path: Path) -> Iterator[KubernetesWorld]:
    """One whose cluster has no room: pods never start."""
    with faultless_world(tmp_path) as world:
        yield world


def begun(gateway: Gateway) -> Sandbox:
    sandbox = gateway.create(key="k")
    assert sandbox is not None
    return sandbox


def hang_up(gateway: Gateway, sandbox: Sandbox) -> None:
    """As the caller of one create does: nobody there has it any more."""
    gateway.made.pop(sandbox.id, None)
    gateway._run(lambda: gateway.lifecycle.ends.orphans.hung_up(sandbox))


def retried(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox) -> Sandbox:
    """A create with the same key waits at that gateway for the same sandbox."""
    gateway.create(key="k")
    known = gateway.directory.by_key("t", "k")
    assert known is not None
    assert known.id == sandbox.id
    return known


def answered(world: KubernetesWorld, gateway: Gateway, sandbox: Sandbox) -> None:
    """The caller that waits there gets it."""
    assert isinstance(gateway, KubernetesGateway)
    gateway.answer_pending(sandbox)
    world.quiet()


def passes(world: KubernetesWorld, seconds: float = 3 * GRACE) -> None:
    for _ in range(int(seconds / 5)):
        world.pass_time(5.0)
        world.quiet()


def owners(world: KubernetesWorld) -> list[str]:
    return [one.owner for one in world.sidecars.values() if one.owner is not None]


def left_running(world: KubernetesWorld) -> Sandbox:
    """Its caller at the first gateway has hung up, and all gateways know it."""
    maker = world.gateways[0]
    sandbox = begun(maker)
    world.quiet()
    assert sandbox.status == "RUNNING"
    hang_up(maker, sandbox)
    world.quiet()
    return sandbox


def test_one_that_a_retry_gets_at_another_gateway_lives(world: KubernetesWorld) -> None:
    """Its caller keeps it for later."""
    sandbox = left_running(world)
    other = world.gateways[1]
    answered(world, other, retried(world, other, sandbox))
    passes(world)
    assert owners(world) == [sandbox.id]


def test_one_that_is_used_through_another_gateway_lives(world: KubernetesWorld) -> None:
    """Its caller found it in a list."""
    sandbox = left_running(world)
    [sidecar] = [one for one in world.sidecars.values() if one.owner == sandbox.id]
    sidecar.used = True
    passes(world)
    assert owners(world) == [sandbox.id]


def test_one_without_a_retry_is_deleted_after_the_grace(world: KubernetesWorld) -> None:
    sandbox = left_running(world)
    passes(world, GRACE - 5.0)
    assert owners(world) == [sandbox.id]
    passes(world, 10.0)
    assert owners(world) == []
    assert sandbox.verdict == "deleted"
    known = world.gateways[1].directory.get(sandbox.id)
    assert known is None or known.verdict == "deleted"


def test_one_without_a_retry_is_deleted_though_its_gateway_dies(world: KubernetesWorld) -> None:
    sandbox = left_running(world)
    world.kill(world.gateways[0])
    passes(world, GRACE - 5.0)
    assert owners(world) == [sandbox.id]
    passes(world, 10.0)
    assert owners(world) == []
    known = world.gateways[1].directory.get(sandbox.id)
    assert known is not None
    assert known.verdict == "deleted"


def test_one_that_a_retry_gets_before_its_gateway_dies_lives(world: KubernetesWorld) -> None:
    sandbox = left_running(world)
    other = world.gateways[1]
    answered(world, other, retried(world, other, sandbox))
    world.kill(world.gateways[0])
    passes(world)
    assert owners(world) == [sandbox.id]


@pytest.mark.parametrize("use", ["a retry", "a read"])
def test_one_whose_caller_comes_back_to_its_gateway_lives(world: KubernetesWorld, use: str) -> None:
    sandbox = left_running(world)
    maker = world.gateways[0]
    if use == "a retry":
        answered(world, maker, retried(world, maker, sandbox))
    else:
        maker._run(lambda: maker.lifecycle.ends.orphans.used(sandbox.id))
    world.quiet()
    passes(world)
    assert owners(world) == [sandbox.id]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_sidecar_that_does_not_answer_is_told_again(world: KubernetesWorld, arrives: bool) -> None:
    maker = world.gateways[0]
    sandbox = begun(maker)
    world.quiet()
    hang_up(maker, sandbox)
    [call] = [one for one in world.calls if one.kind == "orphan"]
    if arrives:
        world.arrive(call)
    world.lose_call(call)
    passes(world, GRACE)
    assert owners(world) == [sandbox.id]
    passes(world, 10.0)
    assert owners(world) == []


@pytest.mark.parametrize("use", ["a retry", "none"])
def test_a_sidecar_that_is_told_late_ends_only_what_has_no_use(world: KubernetesWorld, use: str) -> None:
    """The caller comes back while the sidecar is being told that it has left."""
    maker = world.gateways[0]
    sandbox = begun(maker)
    world.quiet()
    hang_up(maker, sandbox)
    [call] = [one for one in world.calls if one.kind == "orphan"]
    world.calls.remove(call)
    if use == "a retry":
        answered(world, maker, retried(world, maker, sandbox))
    world.calls.append(call)
    world.quiet()
    passes(world)
    assert owners(world) == ([sandbox.id] if use == "a retry" else [])


def test_one_that_gets_its_instance_without_a_caller_is_deleted_though_its_gateway_dies(
    full: KubernetesWorld,
) -> None:
    maker = full.gateways[0]
    sandbox = begun(maker)
    hang_up(maker, sandbox)
    stays_full(full)
    full.pass_time(5.0)
    full.quiet()
    assert owners(full) == [sandbox.id]
    full.kill(maker)
    passes(full, GRACE)
    assert owners(full) == []


def test_one_whose_retry_was_answered_by_a_gateway_that_died_lives(world: KubernetesWorld) -> None:
    sandbox = left_running(world)
    other = world.gateways[1]
    answered(world, other, retried(world, other, sandbox))
    world.kill(other)
    passes(world)
    assert owners(world) == [sandbox.id]


def test_one_whose_retry_hangs_up_too_is_deleted(world: KubernetesWorld) -> None:
    sandbox = left_running(world)
    other = world.gateways[1]
    hang_up(other, retried(world, other, sandbox))
    passes(world)
    assert owners(world) == []
    assert sandbox.verdict == "deleted"


def test_one_whose_retry_is_not_answered_by_a_gateway_that_dies_is_deleted(world: KubernetesWorld) -> None:
    sandbox = left_running(world)
    other = world.gateways[1]
    retried(world, other, sandbox)
    world.kill(other)
    passes(world)
    assert owners(world) == []


def test_a_caller_that_hangs_up_at_another_gateway_ends_nothing_of_the_first(world: KubernetesWorld) -> None:
    """It sent its create to two gateways, and keeps the first one's answer."""
    maker, other = world.gateways
    sandbox = begun(maker)
    world.quiet()
    hang_up(other, retried(world, other, sandbox))
    passes(world)
    assert owners(world) == [sandbox.id]


def test_of_two_sandboxes_for_one_key_that_without_a_caller_ends(world: KubernetesWorld) -> None:
    """The other gateway got no answer when it asked for the key, and brought up a second one for the retry."""
    maker, other = world.gateways
    assert isinstance(maker, KubernetesGateway)
    maker.peers.silent = True
    sandbox = begun(maker)
    second = begun(other)
    world.quiet()
    assert set(owners(world)) == {sandbox.id, second.id}
    hang_up(maker, sandbox)
    passes(world)
    assert owners(world) == [second.id]


@pytest.mark.parametrize("first", ["the use", "the end"])
def test_of_a_retry_and_the_end_of_the_grace_one_wins(world: KubernetesWorld, first: str) -> None:
    """The sidecar decides: a caller gets the sandbox, or an error."""
    sandbox = left_running(world)
    passes(world, GRACE - 5.0)
    other = world.gateways[1]
    known = retried(world, other, sandbox)
    assert isinstance(other, KubernetesGateway)
    handed_out = world.loop.create_task(other.lifecycle.hand_out(known))
    world.settle()
    [use] = [call for call in world.calls if call.kind == "use"]
    if first == "the use":
        world.arrive(use)
    else:
        hang_up(other, known)  # so it is lost to nobody
    world.pass_time(5.0)
    if first == "the end":
        world.arrive(use)
    world.give_answer(use)
    assert handed_out.done()
    assert isinstance(handed_out.exception(), SidecarError) is (first == "the end")
    passes(world)
    assert owners(world) == ([sandbox.id] if first == "the use" else [])


@pytest.mark.parametrize(
    ("event", "lives"),
    [("waits", True), ("hangs up", False), ("dies", False), ("answers", True), ("answers and dies", True)],
)
def test_one_that_does_not_run_yet(full: KubernetesWorld, event: str, lives: bool) -> None:
    """The other gateway, where the retry waits, asks for it, and records that a caller has its id."""
    maker, other = full.gateways
    sandbox = begun(maker)
    hang_up(maker, sandbox)
    stays_full(full)
    known = retried(full, other, sandbox)
    if event == "hangs up":
        hang_up(other, known)
    if event.startswith("answers"):
        assert isinstance(other, KubernetesGateway)
        other.answer_pending(known)
        stays_full(full)
    if event.endswith("dies"):
        full.kill(other)
    for _ in range(60):
        full.pass_time(2.0)
        stays_full(full)
    assert sandbox.live is lives


def stays_full(world: KubernetesWorld) -> None:
    """The API server answers, and nobody starts a pod."""
    while calls := [call for call in world.calls if call.kind == "api"]:
        world.arrive(calls[0])
        world.give_answer(calls[0])
    for read in world.backlogs():
        world.tell(read)
