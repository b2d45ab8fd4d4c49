"""Checks the clocks of this machine, of gateways and controllers, and of the nodes against the API server's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .. import times
from ..doc import Doc
from ..finding import Finding, ok, problem, unchecked
from ..skew import Skew
from ..world import NODE_LEASES, Kind, World
from .words import several

_MOST = 10.0  # seconds
_RENEWAL = 10.0  # seconds after which a kubelet gives up a renewal of its Lease


def check(world: World) -> Iterator[Finding]:
    label = "clock of this machine"
    if world.clock is None:
        yield unchecked(label, "the API server's answer has no time", "compare them yourself: date")
    elif world.clock.exceeds(_MOST):
        yield problem(
            label,
            _told(world.clock),
            "synchronize it (NTP): certificates and tokens fail at wrong times, and logs do not match",
        )
    elif world.clock.may_exceed(_MOST):
        yield unchecked(
            label,
            f"the API server took long to answer: they agree within {world.clock.within} s, or better",
            "run it again, or compare them yourself: date",
        )
    else:
        yield ok(label, f"it agrees with the API server's within {world.clock.within} s")
    yield from _compared(
        "clocks of gateways and controllers",
        world.part_clocks,
        most=_MOST,
        each="clock of",
        advice="synchronize its node's (NTP): deadlines, leases and records of ends have wrong times",
        unknown="see their metrics above: the time is that of their answer",
    )
    yield from _compared(
        "clocks of the nodes",
        {lease.name: _skew(lease) for lease in world.list(Kind.LEASES, NODE_LEASES)},
        most=_MOST + _RENEWAL,
        each="clock of node",
        advice="synchronize it (NTP): its pods' certificates and logs have wrong times",
        unknown="see the nodes above: each kubelet renews its Lease",
    )


def _compared(
    label: str, skews: Mapping[str, Skew | None], *, most: float, each: str, advice: str, unknown: str
) -> Iterator[Finding]:
    """Yield a problem for each that is wrong, and one finding with the largest difference and those without a time.

    `most`: seconds; a time of which that cannot be told is none.
    """
    right: dict[str, Skew] = {}
    missing: list[str] = []
    for name, skew in skews.items():
        if skew is not None and skew.exceeds(most):
            yield problem(f"{each} {name}", _told(skew), advice)
        elif skew is None or skew.may_exceed(most):
            missing.append(name)
        else:
            right[name] = skew
    said = ""
    if right:
        name, furthest = max(right.items(), key=lambda one: one[1].within)
        said = (
            f"{len(right)} agree with the API server's within {furthest.within} s; {name} is furthest from it"
        )
    if missing:
        told = f"of {', '.join(several(missing))} no time is known"
        yield unchecked(label, f"{said}; {told}" if said else told, unknown)
    elif said:
        yield ok(label, said)


def _told(skew: Skew) -> str:
    return f"it is {times.spoken(skew.middle)} {'ahead of' if skew.middle > 0 else 'behind'} the API server's"


def _skew(lease: Doc) -> Skew | None:
    """Return the node's clock against the API server's when it renewed its lease, if that took no time.

    The API server writes whole seconds.
    """
    renewed = times.seconds(lease.text("spec", "renewTime"))
    written = [times.seconds(one.text("time")) for one in lease.docs("metadata", "managedFields")]
    known = [one for one in written if one is not None]
    return -Skew.told(max(known), sent=renewed, got=renewed) if renewed is not None and known else None
