"""Collects the facts about a Sandbox for the plan, beyond those about its pod."""

from __future__ import annotations

from sandlot_kube import clock
from sandlot_kube.objects import Sandbox

from ..plan.sandboxes import Facts
from ..world.world import World
from . import facts

# By then its gateway has given the start up, so nothing waits for a pod; one that had a pod may have had an owner.
_LATE = 60.0
# A gateway that could not reach the API server renews its create within this time after that works again.
_RENEWAL = 15.0


def of(
    world: World,
    sandbox: Sandbox,
    *,
    made_at: float | None,
    replaced: bool,
    node_grace: float,
    now: float,
    wall: float,
) -> Facts:
    """Return the facts. `wall`: the API server's time at `now`."""
    name = sandbox.metadata.name
    pod = world.pods.get(sandbox.instance_id)
    return Facts(
        pod=None if pod is None else facts.of_pod(world, pod, node_grace=node_grace),
        first_seen=world.first_seen[name],
        created_at=_created_at(world, sandbox, now=now, wall=wall),
        told_late=_told_late(world, sandbox, now=now, wall=wall),
        made_at=made_at,
        replaced=replaced,
        lost=world.lost.get(sandbox.instance_id),
        waits_until=_waits_until(world, sandbox, now=now, wall=wall),
        has_instance=sandbox.spec.waits and _has_instance(world, sandbox.spec.sandbox_id),
    )


def _waits_until(world: World, sandbox: Sandbox, *, now: float, wall: float) -> float:
    until = clock.seconds(sandbox.spec.waiting_until)
    if until is None:
        return 0.0
    return max(now + until - wall, world.complete_since(Sandbox) + _RENEWAL)


def _told_late(world: World, sandbox: Sandbox, *, now: float, wall: float) -> bool:
    seen = world.first_seen[sandbox.metadata.name]
    return seen - _created_at(world, sandbox, now=now, wall=wall) > _LATE


def _created_at(world: World, sandbox: Sandbox, *, now: float, wall: float) -> float:
    created = clock.seconds(sandbox.metadata.creation_timestamp)
    return world.first_seen[sandbox.metadata.name] if created is None else now - (wall - created)


def _has_instance(world: World, sandbox_id: str | None) -> bool:
    return any(one.spec.sandbox_id == sandbox_id and not one.spec.waits for one in world.sandboxes.values())
