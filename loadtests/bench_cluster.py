"""`make bench-cluster`: measures the chart on a real Kubernetes, each row against a floor or `pods/exec`."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from loadtests.cluster import (
    churn_rows,
    encrypted_rows,
    image_claims,
    lazy_rows,
    ray_rows,
    simulated,
    slot_file_rows,
    slot_rows,
)
from loadtests.cluster.cold_rows import cold
from loadtests.cluster.create_rows import creates
from loadtests.cluster.exec_rows import latency, rate
from loadtests.cluster.file_rows import files
from loadtests.cluster.many_pods import many_pods
from loadtests.cluster.rate_rows import CALLERS, rates
from loadtests.cluster.site import RUNTIMES, Installation, Site
from loadtests.cluster.start_rows import claimable, cold_burst
from loadtests.cluster.writes_rows import writes
from loadtests.local.file_rows import rows
from loadtests.ray_sandboxes import peer
from loadtests.running import Group, Readings, main

SPEC = Path(__file__).with_name("rangespec-cluster.yaml")


def groups(installation: Installation, *, own_cluster: bool, ray: bool) -> list[Group]:
    """Return the groups to measure; an `own_cluster` has no audit log to read, and no registry to push to.

    `ray`: its sandboxes run on this machine.
    """

    def on_site(
        rows: tuple[str, ...], measure: Callable[[Site, str], Awaitable[Readings]], runtime: str
    ) -> Group:
        async def measured() -> Readings:
            return await measure(await installation.site(), runtime)

        return Group(tuple(f"{row}_{runtime}" for row in rows), measured)

    def in_slots(
        rows: tuple[str, ...], measure: Callable[[Site, str], Awaitable[Readings]], runtime: str
    ) -> Group:
        async def measured() -> Readings:
            return await measure(await installation.with_slots(), runtime)

        return Group(tuple(f"{row}_{runtime}" for row in rows), measured)

    def with_tls(runtime: str) -> Group:
        async def measured() -> Readings:
            return await encrypted_rows.encrypted(installation, runtime)

        return Group(tuple(f"{row}_{runtime}" for row in encrypted_rows.ROWS), measured)

    async def counted() -> Readings:
        return await writes(await installation.site())

    async def loaded_lazily() -> Readings:
        return await lazy_rows.lazy(installation.with_slots)

    made: list[Group] = []
    for runtime in RUNTIMES:
        made += [
            on_site(("exec", "pods_exec"), latency, runtime),
            on_site(("pods_exec_rate",), rate, runtime),
            on_site(tuple(f"rate_{callers}" for callers in CALLERS), rates, runtime),
            on_site(("create", "back_to_back", "burst", "burst_over_spawns"), creates, runtime),
            on_site(churn_rows.ROWS, churn_rows.churn, runtime),
            on_site(("claimable",), claimable, runtime),
            on_site(("cold_burst",), cold_burst, runtime),
            on_site(("cold_create", "cold_at_once"), cold, runtime),
            on_site(rows(), files, runtime),
            with_tls(runtime),
        ]
    if not own_cluster:
        made.append(Group(("writes_warm", "writes_cold", "writes_reused"), counted))
    made.append(Group(("gateway_memory",), many_pods))
    made.append(Group(simulated.ROWS, simulated.simulated))
    made.append(Group(image_claims.ROWS, image_claims.image_claims))
    if not own_cluster:
        # The last: slots stay enabled, and then they are on one node.
        for runtime in RUNTIMES:
            made += [
                in_slots(slot_rows.ROWS, slot_rows.slots, runtime),
                in_slots(slot_file_rows.ROWS, slot_file_rows.slot_files, runtime),
            ]
        if ray:
            made.append(in_slots((ray_rows.ROW,), ray_rows.churn_over_ray, "gvisor"))
        made.append(Group(lazy_rows.ROWS, loaded_lazily))
    return made


def run() -> int:
    installation = Installation()
    own = bool(os.environ.get("SANDLOT_TEST_CONTEXT"))
    if own:
        print(
            "writes_warm, writes_cold and writes_reused are left out: they need the test cluster's audit log",
            flush=True,
        )
        print("rows of slots are left out: they need the test cluster's registry", flush=True)
    lacking = None if own else peer.missing()
    if lacking is not None:
        print(f"{ray_rows.ROW}_gvisor is left out: {lacking}", flush=True)
    return main(
        groups(installation, own_cluster=own, ray=lacking is None),
        spec=SPEC,
        name="bench-cluster",
        description=__doc__ or "",
        around=installation,
    )


if __name__ == "__main__":
    sys.exit(run())
