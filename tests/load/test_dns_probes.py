"""A lookup that is not answered in time is told as that, and fails the bound of its lag."""

from __future__ import annotations

from typing import Any

from loadtests.bounds import read_bounds
from loadtests.cluster.dns_probes import LONGEST, Probes
from loadtests.dns_churn import SPEC


def test_a_probe_that_gave_up_tells_no_time() -> None:
    nobody: Any = None  # a report needs neither pods nor a server
    probes = Probes(nobody, nobody, records=True, service="sandboxes", beside="beside")
    probes.appeared += [0.5, 0.25, LONGEST]
    told = probes.told()
    assert told["a sandbox's record, there, p50"] == "0.50 s"
    assert told["a sandbox's record, there, longest"] == "not within 30 s"


def test_a_probe_that_gave_up_misses_its_bound() -> None:
    lags = {name: bound.at_most for name, bound in read_bounds(SPEC).items() if name.startswith("lag_")}
    assert len(lags) == 3
    assert [name for name, most in lags.items() if most is None or most >= LONGEST] == []
