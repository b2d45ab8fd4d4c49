"""`make loadtest-cluster PROFILE=autoscale`: nodes that follow demand in waves, by cluster-autoscaler's rules."""

from __future__ import annotations

import sys
from pathlib import Path

from loadtests.cluster.autoscale import ROWS, autoscale
from loadtests.running import Group, main

SPEC = Path(__file__).with_name("rangespec-autoscale.yaml")

if __name__ == "__main__":
    sys.exit(main([Group(ROWS, autoscale)], spec=SPEC, name="autoscale", description=__doc__ or ""))
