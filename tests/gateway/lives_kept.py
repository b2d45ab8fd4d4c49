"""What tests of a sandbox that may get a second instance see of a world of lives: calls, and where it runs."""

from __future__ import annotations

from sandlot_gateway.sandboxes import Sandbox

from tests.gateway.lives_gateway import Gateway
from tests.gateway.lives_kubernetes import KubernetesWorld
from tests.gateway.lives_messages import Call


def calls(world: KubernetesWorld, kind: str, *, of: Gateway) -> list[Call]:
    return [call for call in world.calls if (call.kind, call.gateway) == (kind, of)]


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
