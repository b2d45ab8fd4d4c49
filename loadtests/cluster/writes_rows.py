"""API server writes of our parts for one sandbox, from the test cluster's audit log."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping

from sandlot import AsyncSandbox

from loadtests.cluster.site import KEPT, Pool, Site
from loadtests.reading import Reading
from tests.cluster import cluster
from tests.cluster.faults import CONTROL_PLANE

LOG = "/var/log/kubernetes/audit.log"
AT_ONCE, BATCHES = 4, 2
REUSED = 40  # short sandboxes in reused pods
RECORDED = 15.0  # seconds after which a sandbox that still lives has its resource, and a pool its status
USED = 3.0  # lifetime of a sandbox in seconds: longer than the delay of its status
Found = Counter[str]


async def writes(site: Site) -> dict[str, Reading]:
    """Measure `writes_warm`, `writes_cold` and `writes_reused`.

    The first two count from a sandbox's create to the removal of its resource, the last one sandboxes that end at once.
    """
    # The removal of earlier sandboxes is a write of the controller, and would count.
    await _gone(site)
    reused = await _reused(site)
    await _gone(site)
    async with site.pool("runc", size=AT_ONCE, reuse="never") as pool:
        begun = await asyncio.to_thread(_position)
        for _ in range(BATCHES):
            await _lives(pool, [await pool.create() for _ in range(AT_ONCE)])
            await pool.full(AT_ONCE)
        # Not the pool's size, so that no warm sandbox fits.
        boxes = await asyncio.gather(*(pool.create_cold() for _ in range(AT_ONCE)))
        cold = {await pool.pod_of(box) for box in boxes}
        await _lives(pool, boxes)
        await _gone(site)
        text = await asyncio.to_thread(_since, begun)
    warm_found, cold_found = counted(text, namespace=site.stack.namespace, cold=cold)
    warm = AT_ONCE * BATCHES
    # One deletion of many serves all of them.
    together = {name: count for name, count in warm_found.items() if " deletecollection " in name}
    share = warm / (warm + len(cold))
    shared_by_warm = {name: count * share for name, count in together.items()}
    shared_by_cold = {name: count * (1 - share) for name, count in together.items()}
    return {
        "writes_warm": _reading(warm_found | shared_by_warm, warm),
        "writes_cold": _reading(cold_found | shared_by_cold, len(cold)),
        "writes_reused": _reading(reused, REUSED),
    }


async def _reused(site: Site) -> Found:
    """Count the writes while sandboxes come and go in reused pods."""
    async with site.pool("runc", size=AT_ONCE, reuse="tenant") as pool:
        await asyncio.sleep(RECORDED)  # the pool's own start has been written
        begun = await asyncio.to_thread(_position)
        left = iter(range(REUSED))

        async def caller() -> None:
            for _ in left:
                box = await pool.create()
                await box.exec("true")
                await box.delete()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(caller())
        await asyncio.sleep(RECORDED)
        text = await asyncio.to_thread(_since, begun)
    return counted(text, namespace=site.stack.namespace, cold=())[0]


async def _lives(pool: Pool, boxes: list[AsyncSandbox]) -> None:
    await asyncio.gather(*(box.exec("true") for box in boxes))
    await asyncio.sleep(USED)
    await asyncio.gather(*(box.delete() for box in boxes))


async def _gone(site: Site) -> None:
    """Wait until no Sandbox is left; ended ones are removed once a minute."""
    listing = ("get", "sandboxes", "-n", site.stack.sandboxes, "-o", "name")
    async with asyncio.timeout(KEPT + 240):
        while True:
            if not (await site.kubectl(*listing)).strip():
                return
            await asyncio.sleep(1.0)


def _position() -> int:
    return int(cluster.recorded().on_node(CONTROL_PLANE, "stat", "-c", "%s", LOG))


def _since(position: int) -> str:
    return cluster.recorded().on_node(CONTROL_PLANE, "tail", "-c", f"+{position + 1}", LOG)


def counted(text: str, *, namespace: str, cold: Collection[str]) -> tuple[Found, Found]:
    """Count the writes of a namespace's accounts by part, verb and resource, those about `cold` names apart."""
    ours = f"system:serviceaccount:{namespace}:"
    warm_found: Found = Counter()
    cold_found: Found = Counter()
    for line in text.splitlines():
        event = json.loads(line)
        user = event["user"]["username"]
        if not user.startswith(ours) or event["verb"] in ("get", "list", "watch"):
            continue
        target = event.get("objectRef", {})
        resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
        found = cold_found if target.get("name") in cold else warm_found
        found[f"{user.rpartition('-')[2]} {event['verb']} {resource}"] += 1
    return warm_found, cold_found


def _reading(found: Mapping[str, float], sandboxes: int) -> Reading:
    """Return writes per sandbox, without renewals of the Lease, which happen regardless of sandboxes."""
    most_first = sorted(found.items(), key=lambda item: -item[1])
    per = {name: count for name, count in most_first if not name.endswith(" leases")}
    parts = {name: f"{count / sandboxes:.2f}" for name, count in per.items()}
    leases = sum(found.values()) - sum(per.values())
    if leases:
        parts["renewals of the Lease, not counted"] = f"{leases:.0f}"
    return Reading(value=sum(per.values()) / sandboxes, parts={"sandboxes": str(sandboxes), **parts})
