"""Pods that come and go to be looked up: the time until their records are there, and until they are gone."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from sandlot_grade.report.stats import median
from sandlot_kube import paths

from loadtests.cluster import dns_server
from loadtests.cluster.dns_query import Asker
from loadtests.cluster.many_pods import ADDRESS

if TYPE_CHECKING:
    from loadtests.cluster.dns_churn import Pods

PAUSE = 0.02  # seconds between two questions of a probe
LONGEST = 30.0  # seconds; a later answer counts as this


@dataclass
class Probes:
    """One a second. Times are from a pod's status or deletion to the first right answer."""

    pods: Pods
    asker: Asker
    records: bool  # each pod has one in `service`
    service: str
    beside: str  # a Service of the probes alone
    changes: int = 0
    appeared: list[float] = field(default_factory=list[float])
    vanished: list[float] = field(default_factory=list[float])
    appeared_beside: list[float] = field(default_factory=list[float])
    vanished_beside: list[float] = field(default_factory=list[float])

    async def run(self, seconds: float) -> None:
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds)):
                await asyncio.sleep(begun + number - time.monotonic())
                group.create_task(self._probe())

    async def _probe(self) -> None:
        name = await self.pods.make(beside=True)
        self.changes += 1
        path = paths.pods(self.pods.namespace, name)
        names = [(self._name(self.beside), self.appeared_beside, self.vanished_beside)]
        if self.records:
            names.append((f"{name}.{self._name(self.service)}", self.appeared, self.vanished))
        address = json.loads(await self.pods.client.request("GET", path))["metadata"]["annotations"][ADDRESS]
        there = await asyncio.gather(*(self._when(each, address, there=True) for each, _, _ in names))
        pod = json.loads(await self.pods.client.request("GET", path))
        ready = next(one["message"] for one in pod["status"]["conditions"] if one["type"] == "Ready")
        for (_, appeared, _), at in zip(names, there, strict=True):
            appeared.append(_seconds(at, since=datetime.fromisoformat(ready).timestamp()))
        await self.pods.delete(name)
        self.changes += 1
        deleted = time.time()
        gone = await asyncio.gather(*(self._when(each, address, there=False) for each, _, _ in names))
        for (_, _, vanished), at in zip(names, gone, strict=True):
            vanished.append(_seconds(at, since=deleted))

    def _name(self, service: str) -> str:
        return f"{service}.{self.pods.namespace}.svc.{dns_server.DOMAIN}"

    async def _when(self, name: str, address: str, *, there: bool) -> float | None:
        """Ask until the name has the address, or no longer; return when that was, None if it was not."""
        until = time.time() + LONGEST
        while time.time() < until:
            found = await self.asker.ask(name)
            if found is not None and (address in found) is there:
                return time.time()
            await asyncio.sleep(PAUSE)
        return None

    def curves(self) -> dict[str, list[float]]:
        """Return the sorted seconds by what they are of."""
        all_of = {
            "a sandbox's record, there": self.appeared,
            "a sandbox's record, gone": self.vanished,
            "another Service's, there": self.appeared_beside,
            "another Service's, gone": self.vanished_beside,
        }
        return {what: sorted(each) for what, each in all_of.items() if each}

    def told(self) -> dict[str, str]:
        """Return the median and the longest of each: one probe a second is too few for a p99."""
        told = {"probes": str(len(self.appeared_beside))}
        for what, each in self.curves().items():
            told |= {f"{what}, p50": _spoken(median(each)), f"{what}, longest": _spoken(each[-1])}
        return told


def _seconds(at: float | None, *, since: float) -> float:
    return LONGEST if at is None else min(LONGEST, at - since)


def _spoken(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < LONGEST else f"not within {LONGEST:.0f} s"
