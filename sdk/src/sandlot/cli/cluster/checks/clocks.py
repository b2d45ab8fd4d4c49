"""Checks the clocks of this machine, of gateways and controllers, and of the nodes against the API server's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import times
from ..doc import Doc
from ..finding import Finding, ok, problem
from ..world import NODE_LEASES, Kind, World

_MOST = 10.0  # seconds; the API server tells its time in whole seconds


def check(world: World) -> Iterator[Finding]:
    ahead = world.local - world.now
    if abs(ahead) > _MOST:
        yield problem(
            "clock of this machine",
            f"it is {times.spoken(ahead)} {_direction(ahead)} the API server's",
            "synchronize it (NTP): certificates and tokens fail at wrong times, and logs do not match",
        )
    else:
        yield ok("clock of this machine", f"it agrees with the API server's: {_exact(ahead)}")
    yield from _compared(
        "clocks of gateways and controllers",
        world.part_clocks,
        each="clock of",
        advice="synchronize its node's (NTP): deadlines, leases and records of ends have wrong times",
    )
    skews = {lease.name: _skew(lease) for lease in world.list(Kind.LEASES, NODE_LEASES)}
    yield from _compared(
        "clocks of the nodes",
        {node: skew for node, skew in skews.items() if skew is not None},
        each="clock of node",
        advice="synchronize it (NTP): its pods' certificates and logs have wrong times",
    )


def _compared(label: str, skews: Mapping[str, float], *, each: str, advice: str) -> Iterator[Finding]:
    """Yield a problem for each that is wrong, or one finding with the largest difference."""
    wrong = {name: skew for name, skew in skews.items() if abs(skew) > _MOST}
    for name, skew in wrong.items():
        yield problem(
            f"{each} {name}", f"it is {times.spoken(skew)} {_direction(skew)} the API server's", advice
        )
    if skews and not wrong:
        name, most = max(skews.items(), key=lambda one: abs(one[1]))
        yield ok(
            label, f"{len(skews)} agree with the API server's: {name} is furthest from it, {_exact(most)}"
        )


def _exact(skew: float) -> str:
    return f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"


def _direction(ahead: float) -> str:
    return "ahead of" if ahead > 0 else "behind"


def _skew(lease: Doc) -> float | None:
    """Return by how much the node's clock was ahead of the API server's when it renewed its lease."""
    renewed = times.seconds(lease.text("spec", "renewTime"))
    written = [times.seconds(one.text("time")) for one in lease.docs("metadata", "managedFields")]
    known = [one for one in written if one is not None]
    return renewed - max(known) if renewed is not None and known else None
