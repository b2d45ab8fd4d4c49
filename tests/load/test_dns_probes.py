"""A lookup that is not answered in time is told as that, and fails the bound of its lag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtests.bounds import read_bounds
from loadtests.cluster import dns_probes
from loadtests.cluster.dns_probes import LONGEST, Probes
from loadtests.cluster.many_pods import ADDRESS
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


class Unlisted:
    """Pods, and a server that answers that there is no record: one that is ready after its first question."""

    namespace = "churn"

    def __init__(self) -> None:
        self.client = self

    async def make(self, *, beside: bool) -> str:
        return "a-pod"

    async def delete(self, name: str) -> None: ...

    async def request(self, method: str, path: str) -> str:
        ready = {"type": "Ready", "message": "2100-01-01T00:00:00Z"}
        return json.dumps(
            {"metadata": {"annotations": {ADDRESS: "192.0.2.9"}}, "status": {"conditions": [ready]}}
        )

    async def ask(self, name: str) -> list[str]:
        return []


async def test_a_record_that_never_comes_is_no_lag_however_late_its_pod_was_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns_probes, "LONGEST", 0.1)
    world: Any = Unlisted()
    probes = Probes(world, world, records=True, service="sandboxes", beside="beside")
    await probes.run(1)
    assert probes.appeared == probes.appeared_beside == [0.1]
    assert probes.told()["a sandbox's record, there, longest"].startswith("not within")
