"""Creates per second of one gateway core, p99 of a create at half of that rate, and what a bare server's requests cost."""

from __future__ import annotations

import statistics

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median, percentile

from loadtests.gateway.create_rate import measure
from loadtests.reading import Reading

ROWS = ("create_rate", "create_rate_p99", "create_over_bare")


async def create_rate(*, slots: int = 256, seconds: float = 3.0) -> dict[str, Reading]:
    """Measure the rows of this file. A create is deleted at once, and its slot reset: their CPU counts, too.

    The best round of the rate, because other load on the machine can only slow it down; the median of the ratios.
    """
    found = await measure(slots=slots, seconds=seconds)
    rates = [1 / one.cpu for one in found.full]
    half = found.half
    told = {
        "rounds": ", ".join(f"{rate:.0f}" for rate in rates),
        "by the clock": ", ".join(f"{one.rate:.0f}" for one in found.full) + " /s",
        "CPU of create, delete and reset": f"{min(one.cpu for one in found.full) * 1e6:.0f} µs",
        "create p50, 32 callers": as_time(median(found.full[0].creates)),
        "p99": as_time(percentile(found.full[0].creates, 0.99)),
        "slots": str(slots),
    }
    late = {
        "creates/s": f"{half.rate:.0f}",
        "p50": as_time(median(half.creates)),
        "delete p50": as_time(median(half.deletes)),
        "p99 of a delete": as_time(percentile(half.deletes, 0.99)),
    }
    ratios = {
        "rounds": ", ".join(f"{ratio:.1f}" for ratio in found.over_bare),
        "CPU of a bare request": f"{min(found.bare) * 1e6:.0f} µs",
    }
    curves = {"create at half of the rate": half.creates, "delete at half of the rate": half.deletes}
    return {
        "create_rate": Reading(value=max(rates), parts=told),
        "create_rate_p99": Reading(value=percentile(half.creates, 0.99) * 1000, parts=late, curves=curves),
        "create_over_bare": Reading(value=statistics.median(found.over_bare), parts=ratios),
    }
