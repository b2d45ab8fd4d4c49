"""What a gateway that does not know a sandbox believes of it, by what the other gateways and the sidecars say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandlot_contract.ids import SandboxId
from sandlot_gateway.backends.kubernetes.peers import Missing

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld, faultless_world
from tests.gateway.lives_kubernetes_gateway import Peers
from tests.gateway.test_lives_unheard import assert_served, running_unheard, seek

WRONG = SandboxId("sb-wrong")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[KubernetesWorld]:
    with faultless_world(tmp_path, reuses=True) as world:
        yield world


def test_a_sandbox_that_no_gateway_denies_may_exist_and_sidecars_are_asked(
    world: KubernetesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway that made it is gone, or too slow to say so."""
    sandbox, sidecar = running_unheard(world)
    other = world.gateways[1]
    monkeypatch.setattr(Peers, "found", lambda self, sandbox_id: None)
    seek(world, other, sandbox.id)
    assert not may_have(world, other, sandbox.id), "all have denied it"
    world.quiet()
    assert other.directory.get(sandbox.id) is None
    monkeypatch.setattr(Peers, "missing", Missing.SILENT)
    seek(world, other, sandbox.id)
    assert may_have(world, other, sandbox.id)
    world.quiet()
    assert_served(other, sandbox, sidecar)
    world.pass_time(6.0)
    assert not may_have(world, other, sandbox.id), "that was a moment ago"


def test_a_gateway_that_stays_silent_is_believed_to_have_one_for_a_minute(
    world: KubernetesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.gateways[1]
    monkeypatch.setattr(Peers, "missing", Missing.SILENT)
    began = world.loop.time()
    while world.loop.time() < began + 58.0:
        seek(world, other, WRONG)
        assert may_have(world, other, WRONG)
        world.quiet()
        world.pass_time(4.0)
    world.pass_time(5.0)
    for _ in range(20):
        seek(world, other, WRONG)
        assert not may_have(world, other, WRONG)
        world.pass_time(3.0)
        assert not world.calls, "no sidecar is asked for it any more"


def test_beside_a_dead_gateway_one_is_unknown_once_the_sidecars_have_answered(
    world: KubernetesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.gateways[1]
    monkeypatch.setattr(Peers, "missing", Missing.DEAD)
    seek(world, other, WRONG)
    assert may_have(world, other, WRONG), "the dead one may have claimed a pod for it"
    world.quiet()
    world.pass_time(0.0)
    assert not may_have(world, other, WRONG)
    seek(world, other, WRONG)
    assert not may_have(world, other, WRONG)
    assert not world.calls


def test_what_a_dead_gateway_made_is_found_at_its_sidecar(
    world: KubernetesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, sidecar = running_unheard(world)
    maker, other = world.gateways
    world.kill(maker)
    monkeypatch.setattr(Peers, "found", lambda self, sandbox_id: None)
    monkeypatch.setattr(Peers, "missing", Missing.DEAD)
    seek(world, other, sandbox.id)
    assert may_have(world, other, sandbox.id)
    world.quiet()
    assert_served(other, sandbox, sidecar)


def test_one_that_a_gateway_brings_up_exists_for_as_long_as_that_takes(
    world: KubernetesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.gateways[1]
    monkeypatch.setattr(Peers, "found", lambda self, sandbox_id: Missing.STARTING)
    for _ in range(40):
        seek(world, other, WRONG)
        assert may_have(world, other, WRONG)
        world.pass_time(3.0)


def test_a_sandbox_that_a_gateway_has_may_exist_until_its_sidecar_answers(world: KubernetesWorld) -> None:
    sandbox, _ = running_unheard(world)
    other = world.gateways[1]
    seek(world, other, sandbox.id)
    assert may_have(world, other, sandbox.id)
    assert other.directory.get(sandbox.id) is None


def may_have(world: KubernetesWorld, gateway: Gateway, sandbox_id: SandboxId) -> bool:
    async def ask() -> bool:
        return gateway.backend.may_have(sandbox_id)

    return world.loop.run_until_complete(ask())
