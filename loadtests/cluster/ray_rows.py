"""Short rollouts by 8 callers in slots, and in Ray's sandboxes beside the nodes, in turn: a `runsc` container for each."""

from __future__ import annotations

from sandlot_grade.report.scale import seconds as as_time
from sandlot_grade.report.stats import median

from loadtests.cluster import agents
from loadtests.cluster.churn_rows import CALLERS, Churn, churned
from loadtests.cluster.site import Site
from loadtests.ray_sandboxes.peer import Rollouts, rollouts
from loadtests.reading import Reading
from tests.cluster.paths import IMAGES

ROW = "churn_over_ray"
_SECONDS = 15.0
_TURNS = 2


async def churn_over_ray(site: Site, runtime: str) -> dict[str, Reading]:
    """Measure `churn_over_ray_RUNTIME`: rollouts/s in slots ÷ those of Ray's faster way, with the same image."""
    image = await agents.pushed_python()
    await agents.prepare(site, [image])
    ours: list[Churn] = []
    theirs: list[dict[str, Rollouts]] = []
    async with site.pool(runtime, size=CALLERS, slots=True, reuse="tenant") as pool:
        for _ in range(_TURNS):
            theirs.append(
                await rollouts(IMAGES / "archives" / "python.tar", callers=CALLERS, seconds=_SECONDS)
            )
            ours.append(await churned(pool, seconds=_SECONDS, image=image))
    return {f"{ROW}_{runtime}": compared(ours, theirs)}


def compared(ours: list[Churn], theirs: list[dict[str, Rollouts]]) -> Reading:
    """Return the ratio of the mean rates of all turns; Ray's way with the higher one counts."""
    rates = {way: sum(turn[way].rate for turn in theirs) / len(theirs) for way in theirs[0]}
    best = max(rates, key=lambda way: rates[way])
    rate = sum(turn.rate for turn in ours) / len(ours)
    times = [time for turn in ours for time in turn.times]
    parts = {
        "rollouts/s": f"{rate:.1f}",
        "p50": as_time(median(times)),
        "pods created": str(sum(turn.pods for turn in ours)),
        **{f"rollouts/s, Ray, {way}": f"{found:.1f}" for way, found in rates.items()},
    }
    rays = [time for turn in theirs for time in turn[best].times]
    for index, part in enumerate(("create", "exec", "delete")):
        parts[f"{part} p50, Ray"] = as_time(median([each[index] for each in rays]))
    curves = {
        f"rollout, {CALLERS} callers, slots": times,
        f"rollout, {CALLERS} callers, Ray": [sum(each) for each in rays],
    }
    return Reading(value=rate / rates[best], parts=parts, curves=curves)
