"""Sandboxes that tests start, and what their status has come to."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sandlot_kube import paths
from sandlot_kube.client import MERGE_PATCH

from tests.controller.cluster import Cluster
from tests.controller.objects import is_ready

ID = "i-0123456789abcdef"


def ended(cluster: Cluster, name: str, verdict: str) -> bool:
    one = cluster.sandboxes.get(name)
    return one is not None and one.status.phase == "Ended" and one.status.verdict == verdict


def running(cluster: Cluster, name: str) -> bool:
    one = cluster.sandboxes.get(name)
    return one is not None and one.status.phase == "Running"


async def touch(cluster: Cluster, name: str, *, of: Callable[[str, str], str] = paths.sandboxes) -> None:
    """Change nothing of a resource that counts, so that the controller looks at it."""
    body = {"metadata": {"labels": {"touched": secrets.token_hex(4)}}}
    await cluster.client.request("PATCH", of(cluster.namespace, name), body=body, content_type=MERGE_PATCH)


async def cold(cluster: Cluster, name: str = ID) -> None:
    await cluster.sandbox(name)
    await cluster.until(lambda: name in cluster.pods and is_ready(cluster.pods[name]), "it is up")
