"""`make loadtest-cluster PROFILE=dns-churn`: cluster DNS with thousands of simulated pods, some of which change each second.

ARGS="--pods 1000 --changes 10 --seconds 20" measures a smaller cluster; the defaults are 10,000, 50 and 30.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from loadtests.cluster.dns_churn import ROWS, WAYS, Size, dns_churn
from loadtests.running import Group, main

SPEC = Path(__file__).with_name("rangespec-dns-churn.yaml")


def group(size: Size) -> Group:
    """Return the rows of a run of this size."""
    return Group(tuple(f"{row}_{way}" for way in WAYS for row in ROWS), lambda: dns_churn(size))


def _size() -> Size:
    """Take the size from the command line; `main` reads what is left of it."""
    size, parser = Size(), argparse.ArgumentParser(add_help=False)
    parser.add_argument("--pods", type=int, default=size.pods)
    parser.add_argument("--changes", type=int, default=size.changes)
    parser.add_argument("--seconds", type=float, default=size.seconds)
    found, sys.argv[1:] = parser.parse_known_args()
    return Size(found.pods, found.changes, found.seconds)


if __name__ == "__main__":
    sys.exit(main([group(_size())], spec=SPEC, name="dns-churn", description=__doc__ or ""))
