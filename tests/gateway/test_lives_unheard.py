"""Lives of sandboxes of which a gateway hears only the end, or nothing: what it knows of them afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.core.owners import Claim, KeyQuestion
from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.api_server import PODS, SANDBOXES
from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_messages import Sidecar
from tests.gateway.test_lives_reuse import goes_on, running, verdict


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path) as world:
        yield world


def running_unheard(world: KubernetesWorld) -> tuple[Sandbox, Sidecar]:
    """At the first gateway; no word of it has come to the other, and no answer of its sidecar."""
    maker, other = world.gateways
    sandbox = maker.create()
    assert sandbox is not None
    world.quiet(until=lambda: any(call.kind == "claim" for call in world.calls))
    [claim] = [call for call in world.calls if call.kind == "claim"]
    while watches := world.backlogs():
        world.tell(watches[0])
    world.arrive(claim)
    for call in [call for call in world.calls if call.gateway is other]:
        world.lose_call(call)
    world.words = [word for word in world.words if word.gateway is not other]
    world.quiet()
    assert sandbox.status == "RUNNING"
    assert other.directory.get(sandbox.id) is None
    return sandbox, world.sidecars[claim.instance_id]


def unheard_in(world: KubernetesWorld, sidecar: Sidecar) -> Sandbox:
    """Another sandbox in this pod."""
    for _ in range(5):
        sandbox, where = running_unheard(world)
        if where is sidecar:
            return sandbox
    raise AssertionError("no create gets the pod")


def deleted_unheard(world: KubernetesWorld, sandbox: Sandbox, sidecar: Sidecar) -> None:
    """At the first gateway, which resets its pod; no word of it comes to the other."""
    maker, other = world.gateways
    maker.delete(sandbox)
    world.quiet(until=lambda: bool(world.words))
    world.pass_time(0.1)
    world.words = [word for word in world.words if word.gateway is not other]
    world.quiet()
    assert sidecar.generation == 2
    assert other.directory.get(sandbox.id).status == "RUNNING"


def ends(world: KubernetesWorld, sidecar: Sidecar, verdict: str, *, to: Gateway) -> None:
    """By itself; its word comes to one gateway, as on a cluster."""
    sidecar.phase, sidecar.verdict = "ended", verdict
    world.speak(sidecar, "ended", to=[to])
    world.hear(world.words.pop())
    world.has_ended(sidecar, in_order=True)


def seek(world: KubernetesWorld, gateway: Gateway, sandbox_id: SandboxId) -> None:
    async def sought() -> None:
        gateway.backend.sought(sandbox_id)

    world.loop.run_until_complete(sought())
    world.settle()
    world.pass_time(0.0)


def assert_served(gateway: Gateway, sandbox: Sandbox, sidecar: Sidecar) -> None:
    known = gateway.directory.get(sandbox.id)
    assert known is not None
    assert (known.status, known.instance_id) == ("RUNNING", sidecar.instance_id)


def test_an_end_that_its_own_gateway_did_not_hear_has_the_sidecars_verdict_everywhere(
    world: KubernetesWorld,
) -> None:
    """The gateway that hears it knew no owner there; the pod's end alone would be `sidecar_lost`."""
    maker, other = world.gateways
    sandbox, sidecar = running_unheard(world)
    ends(world, sidecar, "init_killed", to=other)
    goes_on(world, seconds=20.0)
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["init_killed", "init_killed"]
    assert world.api.objects[SANDBOXES] == {}
    assert sidecar.instance_id not in world.api.objects[PODS]


def test_an_end_whose_news_get_lost_is_asked_for_when_the_pod_ends(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    sandbox, sidecar = running_unheard(world)
    ends(world, sidecar, "init_killed", to=other)
    world.pass_time(0.1)
    world.words.clear()
    goes_on(world, seconds=20.0)
    assert verdict(maker, sandbox) == "init_killed"


def test_an_end_that_comes_after_that_of_its_pod_is_told_all_the_same(world: KubernetesWorld) -> None:
    """The sidecar had to say it again: to a gateway that has nothing of that pod any more."""
    maker, other = world.gateways
    sandbox, sidecar = running_unheard(world)
    sidecar.phase, sidecar.verdict = "ended", "init_killed"
    world.has_ended(sidecar, in_order=True)
    world.quiet()
    assert other.backend.instance(sidecar.instance_id) is None
    world.speak(sidecar, "ended", to=[other])
    goes_on(world, seconds=20.0)
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["init_killed", "init_killed"]
    assert world.api.objects[SANDBOXES] == {}


def test_of_a_pod_that_died_no_claim_is_kept(world: KubernetesWorld) -> None:
    others = claims()  # of other tests
    sandbox, sidecar = running(world, world.gateways[0])
    assert {one.sandbox_id for one in claims(but=others)} == {sandbox.id}
    world.die(sidecar)
    goes_on(world, seconds=60.0)
    assert not sandbox.live
    assert claims(but=others) == []


def claims(*, but: Sequence[Claim] = ()) -> list[Claim]:
    """All that anybody still has."""
    gc.collect()
    left_out = {id(one) for one in but}
    return [one for one in gc.get_objects() if isinstance(one, Claim) and id(one) not in left_out]


def test_the_same_in_a_cold_start_is_in_its_record(cold: KubernetesWorld) -> None:
    maker, other = cold.gateways
    sandbox, sidecar = running_unheard(cold)
    ends(cold, sidecar, "init_killed", to=other)
    goes_on(cold, seconds=20.0)
    assert [verdict(gateway, sandbox) for gateway in (maker, other)] == ["init_killed", "init_killed"]
    [record] = cold.api.objects[SANDBOXES]
    assert cold.sandbox(record).status.verdict == "init_killed"


def test_the_end_of_a_pods_next_sandbox_is_not_that_of_the_one_before(world: KubernetesWorld) -> None:
    """The gateway that hears it had not heard of the reset between the two."""
    maker, other = world.gateways
    first, sidecar = running(world, maker)
    deleted_unheard(world, first, sidecar)
    second = unheard_in(world, sidecar)
    ends(world, sidecar, "init_killed", to=other)
    goes_on(world, seconds=20.0)
    assert [verdict(gateway, first) for gateway in (maker, other)] == ["deleted", "deleted"]
    assert [verdict(gateway, second) for gateway in (maker, other)] == ["init_killed", "init_killed"]


def test_the_end_of_a_pod_that_was_reset_is_not_that_of_its_last_sandbox(world: KubernetesWorld) -> None:
    maker, other = world.gateways
    first, sidecar = running(world, maker)
    deleted_unheard(world, first, sidecar)
    ends(world, sidecar, "evicted", to=other)
    goes_on(world, seconds=20.0)
    assert [verdict(gateway, first) for gateway in (maker, other)] == ["deleted", "deleted"]


def test_a_sandbox_is_found_in_a_pod_whose_reset_was_not_heard(world: KubernetesWorld) -> None:
    """The gateway that is asked for it takes the pod for that of the sandbox before it."""
    maker, other = world.gateways
    first, sidecar = running(world, maker)
    deleted_unheard(world, first, sidecar)
    second = unheard_in(world, sidecar)

    seek(world, other, second.id)
    world.quiet()
    assert_served(other, second, sidecar)
    assert verdict(other, first) == "deleted"


def test_a_key_is_found_in_a_pod_whose_reset_was_not_heard_when_its_gateway_dies(
    world: KubernetesWorld,
) -> None:
    maker, other = world.gateways
    first, sidecar = running(world, maker)
    deleted_unheard(world, first, sidecar)
    second = unheard_in(world, sidecar)
    question = KeyQuestion("t", "key", SandboxId("sb-0"), gateway="other")
    # By an earlier create it knows the addresses.
    world.loop.run_until_complete(other.backend.others.holder_of_key(question))
    world.kill(maker)
    asking = world.loop.create_task(other.backend.others.holder_of_key(question))
    world.settle()
    world.quiet()
    world.pass_time(1.0)
    assert asking.done()
    assert_served(other, second, sidecar)
