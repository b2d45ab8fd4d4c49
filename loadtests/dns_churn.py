"""`make loadtest-cluster PROFILE=dns-churn`: cluster DNS with ten thousand simulated pods, some of which change each second."""

from __future__ import annotations

import sys
from pathlib import Path

from loadtests.cluster.dns_churn import ROWS, WAYS, dns_churn
from loadtests.running import Group, main

SPEC = Path(__file__).with_name("rangespec-dns-churn.yaml")
GROUP = Group(tuple(f"{row}_{way}" for way in WAYS for row in ROWS), dns_churn)


if __name__ == "__main__":
    sys.exit(main([GROUP], spec=SPEC, name="dns-churn", description=__doc__ or ""))
