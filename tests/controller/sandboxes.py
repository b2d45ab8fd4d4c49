"""Sandboxes that tests start, and what their status has come to."""

from __future__ import annotations

from tests.controller.cluster import Cluster
from tests.controller.objects import is_ready

ID = "i-0123456789abcdef"


def ended(cluster: Cluster, name: str, verdict: str) -> bool:
    one = cluster.sandboxes.get(name)
    return one is not None and one.status.phase == "Ended" and one.status.verdict == verdict


def running(cluster: Cluster, name: str) -> bool:
    one = cluster.sandboxes.get(name)
    return one is not None and one.status.phase == "Running"


async def cold(cluster: Cluster, name: str = ID) -> None:
    await cluster.sandbox(name)
    await cluster.until(lambda: name in cluster.pods and is_ready(cluster.pods[name]), "it is up")
