"""Checks each pool by the status that the controller writes: full, filling, or why not."""

from __future__ import annotations

from collections.abc import Iterator

from .. import times
from ..doc import Doc
from ..finding import Finding, ok, problem
from ..world import Kind, World

_GRACE = 60.0  # seconds in which a controller looks at a pool, or a pool that lacks pods starts some
_ADVICE = {
    "image_pull": "correct the image in the pool's template, or sandboxes.pods.imagePullSecrets",
    "start_failed": "the message has the node's reason; see the pods below",
}


def check(world: World) -> Iterator[Finding]:
    pools = world.list(Kind.POOLS, world.release.sandboxes)
    if not pools:
        yield ok("pools", "there is none, so every sandbox starts cold")
    for pool in pools:
        yield _pool(pool, now=world.now)


def _pool(pool: Doc, *, now: float) -> Finding:
    label = f"pool {pool.name}"
    ready = pool.condition("Ready")
    created = times.age(pool.text("metadata", "creationTimestamp"), now=now)
    observed = pool.number("status", "observedGeneration")
    if not ready.raw or observed < pool.number("metadata", "generation"):
        detail = (
            "the controller has not looked at it yet"
            if not ready.raw
            else "the controller has not seen its last change"
        )
        if created < _GRACE:
            return ok(label, detail)
        return problem(label, detail, "see the leader above, and the log of the controllers")
    counts = {
        name: pool.number("status", name) for name in ("size", "ready", "starting", "claimed", "failures")
    }
    said = f"{counts['ready']} of {counts['size']} ready, {counts['starting']} starting, {counts['claimed']} claimed"
    if ready.text("reason") in ("Failing", "Waiting"):
        message = ready.text("message") or pool.text("status", "message")
        failures = f", {counts['failures']} starts failed" if counts["failures"] else ""
        advice = _ADVICE.get(
            message.partition(":")[0], "correct what the message names; the pool then fills by itself"
        )
        return problem(label, f"{said}{failures}: {message}", advice)
    lacking = ready.text("status") == "False" and not counts["starting"]
    if lacking and times.age(ready.text("lastTransitionTime"), now=now) > _GRACE:
        return problem(
            label, f"{said}, and none is started", "see the leader above, and the log of the controllers"
        )
    return ok(label, said)
