"""`make loadtest-cluster PROFILE=thousands`: 4,000 and 10,000 sandboxes at once through two gateways, on simulated nodes, and
cold starts at more and less than what such nodes can start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loadtests.cluster import start_ready
from loadtests.cluster.thousands import Size, thousands
from loadtests.cluster.thousands_rows import ROWS
from loadtests.running import Group, Readings, main

SPEC = Path(__file__).with_name("rangespec-thousands.yaml")
SIZES = (4_000, 10_000)


def group(sandboxes: int) -> Group:
    """Return the rows of a run with this many sandboxes: `lost_4000` and so on."""

    async def measured() -> Readings:
        found = await thousands(Size(sandboxes=sandboxes))
        return {f"{row}_{sandboxes}": reading for row, reading in found.items()}

    return Group(tuple(f"{row}_{sandboxes}" for row in ROWS), measured)


GROUPS = (Group(start_ready.ROWS, start_ready.start_ready), *map(group, SIZES))

if __name__ == "__main__":
    sys.exit(main(GROUPS, spec=SPEC, name="thousands", description=__doc__ or ""))
